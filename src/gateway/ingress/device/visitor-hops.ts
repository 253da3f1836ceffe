import type { Connection } from '../../../policy/exchange/policy-exchange.ts'
import type { StreamSlots } from '../../streams/stream-slots.ts'
import { encodeFacts, type InternalFacts, type VisitorEntry } from '../../streams/visitor-facts.ts'
import type { IngressListener } from '../common/ingress-listener.ts'
import { entryFacts } from './entry-facts.ts'
import { HopStreams } from './hop-streams.ts'

let connections = 0

/** Who is on their way to other nodes. */
export interface HopVisitor {
  readonly facts: Connection
}

/** The ways of one visitor's connection to other nodes; made with the first that it takes. */
export class VisitorHops {
  readonly #visitor: HopVisitor
  readonly #connection: number
  readonly #byLink = new Map<StreamSlots, HopStreams>()

  constructor(visitor: HopVisitor) {
    this.#visitor = visitor
    connections += 1
    this.#connection = connections
  }

  /** For requests that come in by a listener; kept until the connection closes. */
  to(link: StreamSlots, listener: IngressListener): HopStreams {
    const kept = this.#byLink.get(link)
    if (kept) return kept
    for (const before of this.#byLink.keys()) if (before.isClosed) this.#byLink.delete(before)
    const streams = this.#make(link, entryFacts(listener, this.#visitor.facts))
    this.#byLink.set(link, streams)
    return streams
  }

  /** For one request that a policy has handed on. */
  handOn(link: StreamSlots, listener: IngressListener, internal: InternalFacts): HopStreams {
    return this.#make(link, { ...entryFacts(listener, this.#visitor.facts), internal })
  }

  /** For the bytes of a connection. */
  pass(link: StreamSlots, entry: VisitorEntry): HopStreams {
    return this.#make(link, entry)
  }

  close(): void {
    for (const streams of this.#byLink.values()) streams.close()
  }

  #make(link: StreamSlots, entry: VisitorEntry): HopStreams {
    const { facts } = this.#visitor
    const { clientIp, clientPort, serverIp, serverPort, startedAt } = facts
    const header = encodeFacts({
      version: 1,
      connection: this.#connection,
      client_ip: clientIp,
      client_port: clientPort,
      server_ip: serverIp,
      server_port: serverPort,
      started_at: startedAt,
      entry,
    })
    return new HopStreams(link, header)
  }
}
