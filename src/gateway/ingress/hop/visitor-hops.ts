import type { Connection } from '../../../policy/exchange/policy-exchange.ts'
import type { PeerLink } from '../../peers/peer-link.ts'
import { encodeFacts, type InternalFacts, type VisitorEntry } from '../../peers/visitor-facts.ts'
import type { IngressListener } from '../ingress-listener.ts'
import { entryFacts } from './entry-facts.ts'
import { HopStreams } from './hop-streams.ts'

let connections = 0

/** Who is on their way to other nodes. */
export interface HopVisitor {
  readonly network: string
  readonly facts: Connection
}

/** The ways of one visitor's connection to other nodes; made with the first that it takes. */
export class VisitorHops {
  readonly #visitor: HopVisitor
  readonly #connection: number
  readonly #byNode = new Map<string, HopStreams>()

  constructor(visitor: HopVisitor) {
    this.#visitor = visitor
    connections += 1
    this.#connection = connections
  }

  /** For requests that come in by a listener; kept until the connection closes. */
  to(link: PeerLink, listener: IngressListener): HopStreams {
    const { nodeId } = link
    const kept = this.#byNode.get(nodeId)
    // A link that was replaced is of no use any more.
    if (kept?.link === link) return kept
    kept?.close()
    const streams = this.#make(link, entryFacts(listener, this.#visitor.facts))
    this.#byNode.set(nodeId, streams)
    return streams
  }

  /** For one request that a policy has handed on. */
  handOn(link: PeerLink, { scheme }: IngressListener, internal: InternalFacts): HopStreams {
    return this.#make(link, { kind: 'http', scheme, internal })
  }

  /** For the bytes of a connection. */
  pass(link: PeerLink, entry: VisitorEntry): HopStreams {
    return this.#make(link, entry)
  }

  close(): void {
    for (const streams of this.#byNode.values()) streams.close()
  }

  #make(link: PeerLink, entry: VisitorEntry): HopStreams {
    const { network, facts } = this.#visitor
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
    return new HopStreams(link, header, network)
  }
}
