import { openTyped } from '../../../muxado/session.ts'
import type {
  Connection,
  SessionCertificate,
  TlsSession,
} from '../../../policy/exchange/policy-exchange.ts'
import { ProxyStream, type StreamClient, type StreamWaiter } from '../../streams/proxy-stream.ts'
import { StreamPool } from '../../streams/stream-pool.ts'
import type { StreamSlots } from '../../streams/stream-slots.ts'
import {
  encodeFacts,
  HopReset,
  type HttpEntry,
  type InternalFacts,
  MAX_CERTIFICATE_BYTES,
  VISITOR_STREAM_TYPE,
  type VisitorEntry,
} from '../../streams/visitor-facts.ts'
import type { IngressListener } from '../common/ingress-listener.ts'

/** A visitor may show any certificate, where a policy asks for one; a home reads no endless one. */
export class CertificateTooLargeError extends Error {
  constructor() {
    super('A certificate of this connection is too large to forward to the gateway of the device.')
  }
}

/** Facts for the serving node about the entry of a request. Throws CertificateTooLargeError. */
function entryFacts({ scheme, internal }: IngressListener, { tls }: Connection): HttpEntry {
  return {
    kind: 'http',
    scheme,
    ...(tls && { tls: tlsFacts(tls) }),
    ...(internal && {
      internal: {
        owner_id: internal.ownerId,
        ask_depth: internal.asker.depth,
        hops: 0,
        withholds_login: false,
      },
    }),
  }
}

/** Returns the session without the terms of a policy: the node that runs the policy knows them. */
export function tlsFacts(tls: TlsSession) {
  const { serverCertificate, clientCertificate } = tls
  return {
    version: tls.version,
    cipher: tls.cipherSuite,
    server_name: tls.serverName,
    alpn: tls.alpn,
    ...(serverCertificate && { server_certificate: derOf(serverCertificate) }),
    ...(clientCertificate && { client_certificate: derOf(clientCertificate) }),
  }
}

function derOf({ x509 }: SessionCertificate): string {
  if (x509.raw.length > MAX_CERTIFICATE_BYTES) throw new CertificateTooLargeError()
  return x509.raw.toString('base64')
}

/**
 * The streams of one visitor's connection to one home: a visitor of HTTP/1.1 has one, of HTTP/2 one
 * for each request at a time. They go with the visitor's connection, or with the link; an idle one
 * sooner, when others want its slot.
 */
export class PeerStreams extends StreamPool {
  /** `facts` stand in front of each stream. */
  constructor(slots: StreamSlots, facts: Buffer) {
    super({ slots, proxyHeader: () => facts })
  }

  /** The other node closes no stream unasked. */
  override acquireOnce(client: StreamClient, waiter: StreamWaiter): void {
    this.acquire(client, waiter)
  }

  protected override makeStream(facts: Buffer): ProxyStream {
    const { session } = this.slots
    return new HopStream(this, (handler) => openTyped(session, VISITOR_STREAM_TYPE, handler, facts))
  }
}

/** The other end is no SDK: it is informed at once that the rest is not needed. */
class HopStream extends ProxyStream {
  override retire(): void {
    const { stream } = this
    super.retire()
    if (!stream.isClosed) stream.reset(HopReset.broken)
  }
}

let connections = 0

/** A visitor of endpoints at other nodes. */
export interface PeerVisitor {
  readonly facts: Connection
}

/** The ways of one visitor's connection to other nodes; made with the first that it takes. */
export class VisitorPeerStreams {
  readonly #visitor: PeerVisitor
  readonly #connection: number
  readonly #byLink = new Map<StreamSlots, PeerStreams>()

  constructor(visitor: PeerVisitor) {
    this.#visitor = visitor
    connections += 1
    this.#connection = connections
  }

  /** For requests that come in by a listener; kept until the connection closes. */
  to(link: StreamSlots, listener: IngressListener): PeerStreams {
    const kept = this.#byLink.get(link)
    if (kept) return kept
    for (const before of this.#byLink.keys()) if (before.isClosed) this.#byLink.delete(before)
    const streams = this.#make(link, entryFacts(listener, this.#visitor.facts))
    this.#byLink.set(link, streams)
    return streams
  }

  /** For one request that a policy has handed on. */
  handOn(link: StreamSlots, listener: IngressListener, internal: InternalFacts): PeerStreams {
    return this.#make(link, { ...entryFacts(listener, this.#visitor.facts), internal })
  }

  /** For the bytes of a connection. */
  pass(link: StreamSlots, entry: VisitorEntry): PeerStreams {
    return this.#make(link, entry)
  }

  close(): void {
    for (const streams of this.#byLink.values()) streams.close()
  }

  #make(link: StreamSlots, entry: VisitorEntry): PeerStreams {
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
    return new PeerStreams(link, header)
  }
}
