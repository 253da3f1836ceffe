import { X509Certificate } from 'node:crypto'
import { networkOf } from '../../../base/net/network.ts'
import { ErrorCode } from '../../../muxado/error-code.ts'
import { DEAF, type Stream } from '../../../muxado/stream.ts'
import type { AddressTables } from '../../../policy/exchange/address-tables.ts'
import type {
  Connection,
  SessionCertificate,
  TlsSession,
} from '../../../policy/exchange/policy-exchange.ts'
import type { ServedCertificate } from '../../certificates/certificate-file.ts'
import type { Endpoint } from '../../endpoints/endpoint.ts'
import { PeerSocket } from '../../streams/peer-socket.ts'
import {
  FactsReader,
  HopReset,
  type HttpEntry,
  type InternalFacts,
  type VisitorEntry,
  type VisitorFacts,
} from '../../streams/visitor-facts.ts'
import { ConnectionCertificate } from '../common/connection-facts.ts'
import type { IngressContext } from '../common/ingress-context.ts'
import type { HandedOn, IngressListener } from '../common/ingress-listener.ts'
import { ClientConnection } from './connection.ts'
import { SecureConnection } from './secure-connection.ts'
import { TcpConnection } from './tcp-connection.ts'
import type { IngressConnection } from './visitor.ts'

type TlsFacts = NonNullable<HttpEntry['tls']>

/**
 * A visitor's connection to another node, as policies see it. All its streams to this node count as one
 * connection.
 */
class PeerConnection implements Connection {
  readonly clientIp: string
  readonly clientPort: number
  readonly serverIp: string
  readonly serverPort: number
  readonly startedAt: number
  readonly tls: TlsSession | undefined
  readonly tables: AddressTables | undefined
  /** Endpoints whose connect rules have run for it. */
  readonly admittedBy = new WeakSet<Endpoint>()
  readonly #sockets = new Set<PeerSocket>()
  #closedIn = 0
  #closedOut = 0

  constructor(facts: VisitorFacts, tables: AddressTables | undefined) {
    this.clientIp = facts.client_ip
    this.clientPort = facts.client_port
    this.serverIp = facts.server_ip
    this.serverPort = facts.server_port
    this.startedAt = facts.started_at
    this.tables = tables
    const { entry } = facts
    this.tls = 'tls' in entry && entry.tls ? new PeerTlsSession(entry.tls) : undefined
  }

  get bytesIn(): number {
    let bytes = this.#closedIn
    for (const { bytesRead } of this.#sockets) bytes += bytesRead
    return bytes
  }

  get bytesOut(): number {
    let bytes = this.#closedOut
    for (const { bytesWritten } of this.#sockets) bytes += bytesWritten
    return bytes
  }

  add(socket: PeerSocket): void {
    this.#sockets.add(socket)
  }

  /** Returns true if no stream is left. */
  remove(socket: PeerSocket): boolean {
    this.#sockets.delete(socket)
    this.#closedIn += socket.bytesRead
    this.#closedOut += socket.bytesWritten
    return this.#sockets.size === 0
  }
}

/** TLS that ended at another node. Its certificates are parsed when a policy asks for them. */
class PeerTlsSession implements TlsSession {
  readonly version: string
  readonly cipherSuite: string
  readonly serverName: string
  readonly alpn: string
  readonly #facts: TlsFacts
  #server: SessionCertificate | undefined
  #client: SessionCertificate | undefined

  constructor(facts: TlsFacts) {
    this.#facts = facts
    this.version = facts.version
    this.cipherSuite = facts.cipher
    this.serverName = facts.server_name
    this.alpn = facts.alpn
  }

  get serverCertificate(): SessionCertificate | undefined {
    this.#server ??= certificateOf(this.#facts.server_certificate)
    return this.#server
  }

  get clientCertificate(): SessionCertificate | undefined {
    this.#client ??= certificateOf(this.#facts.client_certificate)
    return this.#client
  }
}

function certificateOf(der: string | undefined): SessionCertificate | undefined {
  if (der === undefined) return undefined
  return new ConnectionCertificate(new X509Certificate(Buffer.from(der, 'base64')))
}

/** The link of another node that a stream came by. */
export interface PeerOrigin {
  readonly nodeId: string
}

/** First byte sent back on a stream with raw bytes: this node serves the name. */
const HOME_BYTE = Buffer.from([1])

export interface PeerIngressOptions {
  readonly context: IngressContext
  /** Returns the certificate for a server name, where TLS ends here because of a policy. */
  readonly certificate: (serverName: string | undefined) => ServedCertificate
  onConnection(connection: IngressConnection): void
  onClose(connection: IngressConnection): void
}

/**
 * Ingress for visitors of other nodes. They are served like visitors of this node. Their identity is taken
 * only from the node, which has proved that it belongs to the cluster.
 */
export class PeerIngress {
  readonly #options: PeerIngressOptions
  /** Keyed by link and `keyOf`, while a stream is open. */
  readonly #visitors = new WeakMap<PeerOrigin, Map<string, PeerConnection>>()

  constructor(options: PeerIngressOptions) {
    this.#options = options
  }

  accept(stream: Stream, origin: PeerOrigin): void {
    const reader = new FactsReader()
    stream.handler = {
      ...DEAF,
      onData: (chunk) => {
        try {
          const read = reader.push(chunk)
          // No later reader returns the credit of the bytes before the visitor's data.
          stream.release(chunk.length - (read?.rest.length ?? 0))
          if (read) this.#enter(stream, read.facts, origin, read.rest)
        } catch (err) {
          const { nodeId } = origin
          this.#options.context.log.warn(
            { err, node: nodeId },
            'a node sent no valid visitor details',
          )
          stream.reset(ErrorCode.protocol)
        }
      },
      onEnd: () => stream.retire(),
    }
  }

  #enter(stream: Stream, facts: VisitorFacts, origin: PeerOrigin, rest: Buffer): void {
    const { context, onConnection, onClose } = this.#options
    const visitor = this.#visitorOf(facts, origin)
    const socket = new PeerSocket(stream, visitor)
    visitor.add(socket)
    socket.once('close', () => {
      if (visitor.remove(socket)) this.#visitors.get(origin)?.delete(keyOf(facts))
    })
    const { entry } = facts
    if (entry.kind !== 'http') {
      if (rest.length > 0) socket.onData(rest)
      this.#splice(socket, entry, visitor)
      return
    }
    const connection = new ClientConnection({
      socket,
      listener: listenerOf(entry, visitor, socket, origin),
      context,
      admitted: { facts: visitor, endpoint: undefined, by: visitor.admittedBy },
      onClose,
    })
    onConnection(connection)
    connection.open()
    if (rest.length > 0) socket.onData(rest)
  }

  /** The other node sends the visitor's bytes after this node has confirmed that it serves the name. */
  #splice(
    socket: PeerSocket,
    entry: Exclude<VisitorEntry, { kind: 'http' }>,
    visitor: PeerConnection,
  ): void {
    const { context, certificate, onConnection, onClose } = this.#options
    const find = this.#finderOf(entry)
    const found = find(networkOf(socket.remoteAddress))
    if (!found || found.type === 'disconnected') {
      socket.refuse(HopReset.notMine)
      return
    }
    socket.write(HOME_BYTE)
    const isHanded = entry.kind === 'handed'
    const goesOnInTls = isHanded && entry.url.startsWith('tls:') && !visitor.tls
    if (entry.kind === 'tls' || goesOnInTls) {
      const listener: IngressListener = {
        scheme: 'https',
        redirectsToHttps: false,
        staysHere: true,
      }
      onConnection(
        new SecureConnection({
          ...{ socket, certificate, listener, context, onClose },
          handed: isHanded ? { find, hops: entry.hops } : undefined,
        }),
      )
      return
    }
    const handed = isHanded ? { hops: entry.hops, tls: visitor.tls } : undefined
    const connection = new TcpConnection({ socket, context, find, handed, onClose })
    onConnection(connection)
    connection.start()
  }

  #finderOf(entry: Exclude<VisitorEntry, { kind: 'http' }>) {
    const { ownRoutes } = this.#options.context
    return (network: string) => {
      switch (entry.kind) {
        case 'tls':
          return ownRoutes.match(entry.server_name, 'tls', network)
        case 'tcp':
          return ownRoutes.match(entry.address, 'tcp', network)
        case 'handed':
          return ownRoutes.matchInternal(new URL(entry.url), entry.owner_id, network)
      }
    }
  }

  #visitorOf(facts: VisitorFacts, origin: PeerOrigin): PeerConnection {
    const visitors = this.#visitors.get(origin) ?? new Map<string, PeerConnection>()
    this.#visitors.set(origin, visitors)
    const key = keyOf(facts)
    const visitor = visitors.get(key) ?? new PeerConnection(facts, this.#options.context.addresses)
    visitors.set(key, visitor)
    return visitor
  }
}

/**
 * Key of a visitor's connection. Older versions send no TLS details with requests that a policy forwarded.
 * For rules, such a stream belongs to a separate connection, so that results do not mix.
 */
function keyOf({ connection, entry }: VisitorFacts): string {
  return 'tls' in entry && entry.tls ? `${connection} tls` : `${connection}`
}

function listenerOf(
  { scheme, internal }: HttpEntry,
  visitor: PeerConnection,
  socket: PeerSocket,
  { nodeId }: PeerOrigin,
): IngressListener {
  const { policyClosed, notMine } = HopReset
  return {
    scheme,
    // The node that the visitor connected to has already done that.
    redirectsToHttps: false,
    internal: internal && !internal.url ? askOf(internal, visitor) : undefined,
    peer: {
      nodeId,
      refuse: (reason) => socket.refuse(reason === 'policy' ? policyClosed : notMine),
      handed: internal?.url ? handedOf(internal, internal.url) : undefined,
    },
  }
}

function askOf({ owner_id: ownerId, ask_depth: depth }: InternalFacts, connection: PeerConnection) {
  return { asker: { connection, depth }, ownerId }
}

function handedOf(internal: InternalFacts, url: string): HandedOn {
  return {
    url: new URL(url),
    ownerId: internal.owner_id,
    askDepth: internal.ask_depth,
    hops: internal.hops,
    withholdsLogin: internal.withholds_login,
  }
}
