import type { Socket } from 'node:net'
import { createServer, type Server, type TLSSocket } from 'node:tls'
import { StartError } from '../../../base/app-error.ts'
import type { Clock } from '../../../base/clock.ts'
import {
  formatListenAddress,
  type ListenAddress,
  listenOn,
  listenProblem,
} from '../../../base/listen-address.ts'
import type { Logger } from '../../../base/logger.ts'
import { ConnectionShares, type ConnectionStage } from '../../../base/net/connection-shares.ts'
import type { Stream } from '../../../muxado/stream.ts'
import type { PublicPorts } from './greeting.ts'
import { PEER_PROTOCOL, type PeerIdentity, peerOf, tlsOptions } from './peer-identity.ts'
import { PeerSession } from './peer-session.ts'

const HANDSHAKE_MS = 5_000
/** Connections that have not shown that they are of a node, or are. */
const CONNECTIONS = 256
/** Links of a node at once: the serving link, and one whose loss the node has not noticed. */
const LINKS_OF_NODE = 3

export interface PeerListenerOptions {
  readonly listen: ListenAddress
  readonly identity: PeerIdentity
  readonly ports: PublicPorts
  /**
   * Whether a node with a certificate of the cluster still belongs to it: it may have been removed. Undefined
   * while that is unknown; the node then tries again.
   */
  readonly isKnown: (nodeId: string) => Promise<boolean | undefined>
  /** A visitor's stream from another node; its handler is to be set before returning. */
  readonly onVisitor: (stream: Stream, origin: PeerSession) => void
  /** Answers calls of another node; undefined: no calls. */
  readonly onQuestion?: (message: unknown) => Promise<object>
  readonly log: Logger
  readonly clock: Clock
}

/** Accepts links of other nodes. TLS requires a certificate of the cluster. */
export class PeerListener {
  readonly #options: PeerListenerOptions
  readonly #shares = new ConnectionShares<PeerConnection>({ capacity: CONNECTIONS })
  readonly #connections = new Map<Socket, PeerConnection>()
  readonly #sessions = new Set<PeerSession>()
  #server: Server | undefined
  #closed: Promise<void> | undefined

  constructor(options: PeerListenerOptions) {
    this.#options = { ...options, log: options.log.child({ part: 'peers' }) }
  }

  /** The nodes that have a link to here. */
  get nodeIds(): string[] {
    return [...this.#sessions].map(({ nodeId }) => nodeId)
  }

  /** Listens and gives the real address. Throws a StartError when it is taken. */
  async start(): Promise<ListenAddress> {
    const { listen, identity, log } = this.#options
    const server = createServer({
      ...tlsOptions(identity),
      handshakeTimeout: HANDSHAKE_MS,
      ALPNProtocols: [PEER_PROTOCOL],
      requestCert: true,
      rejectUnauthorized: true,
    })
    this.#server = server
    server.on('connection', (socket: Socket) => this.#admit(socket))
    server.on('secureConnection', (socket) => this.#accept(socket))
    server.on('tlsClientError', (error, socket) => {
      // If the certificate of a node has expired, the link in the other direction reports it.
      const reason = socket.authorizationError ?? error.message
      log.debug({ reason, remote: socket.remoteAddress }, 'tls handshake failed')
      socket.destroy()
    })
    try {
      await listenOn(server, listen)
    } catch (error) {
      const problem = listenProblem(error, 'GATEWAY_PEER_LISTEN')
      throw new StartError(
        `Other nodes cannot connect on ${formatListenAddress(listen)}: ${problem}.`,
        { cause: error },
      )
    }
    server.on('error', (err) => log.error({ err }, 'peer listener failed'))
    const address = server.address()
    const port = typeof address === 'object' && address ? address.port : listen.port
    return { host: listen.host, port }
  }

  /** Shows another certificate to connections that come from now on. */
  setIdentity(identity: PeerIdentity): void {
    this.#server?.setSecureContext(tlsOptions(identity))
  }

  /** Ends the links of removed nodes. Refused nodes get the reason. */
  keep(isKnown: (nodeId: string) => boolean): void {
    for (const session of this.#sessions) {
      const { nodeId } = session
      if (isKnown(nodeId) || !session.cutOff()) continue
      this.#options.log.warn({ node: nodeId, refusal: 'stranger' }, 'node disconnected')
    }
  }

  /** Takes no new links: the address is free for the next process. Links that are up stay until `stop()`. */
  close(): void {
    const server = this.#server
    this.#server = undefined
    if (server) this.#closed = new Promise((resolve) => server.close(() => resolve()))
  }

  /** Ends all incoming links, with their running requests. */
  async stop(): Promise<void> {
    this.close()
    await Promise.all([...this.#sessions].map((session) => session.end()))
    for (const socket of this.#connections.keys()) socket.destroy()
    await this.#closed
  }

  #admit(socket: Socket): void {
    const connection = new PeerConnection(socket)
    if (!this.#shares.admit(connection, socket.remoteAddress)) {
      socket.destroy()
      return
    }
    this.#connections.set(socket, connection)
    socket.once('close', () => {
      this.#shares.release(connection)
      this.#connections.delete(socket)
    })
  }

  #accept(socket: TLSSocket): void {
    const { log } = this.#options
    // The end of the connection reports the error.
    socket.on('error', () => {})
    const nodeId = peerOf(socket)
    // TLS also accepts clients that name no protocol.
    if (nodeId === undefined || socket.alpnProtocol !== PEER_PROTOCOL) {
      log.warn({ remote: socket.remoteAddress }, 'the client is not a node of the cluster')
      socket.destroy()
      return
    }
    this.#serve(socket, nodeId)
  }

  #serve(socket: TLSSocket, nodeId: string): void {
    this.#makeRoom(nodeId)
    const session = new PeerSession({ ...this.#options, socket, nodeId })
    this.#sessions.add(session)
    for (const [raw, connection] of this.#connections) {
      if (raw.remotePort === socket.remotePort && raw.remoteAddress === socket.remoteAddress)
        connection.session = session
    }
    void session.closed.then(() => this.#sessions.delete(session))
  }

  /**
   * The newest link may be the only one that the node still has. Links without a greeting are closed first.
   */
  #makeRoom(nodeId: string): void {
    const own = [...this.#sessions].filter((session) => session.nodeId === nodeId)
    if (own.length < LINKS_OF_NODE) return
    const oldest = own.find(({ isWelcome }) => !isWelcome) ?? own[0]
    if (!oldest) return
    this.#sessions.delete(oldest)
    oldest.drop('replaced by a newer link of the node')
  }
}

/** A connection as the limits count it. Until its node is accepted, it counts as idle. */
class PeerConnection {
  readonly idleSince = performance.now()
  readonly #socket: Socket
  session: PeerSession | undefined

  constructor(socket: Socket) {
    this.#socket = socket
  }

  get stage(): ConnectionStage {
    return this.session?.isWelcome ? 'busy' : 'idle'
  }

  yieldPlace(): void {
    this.#socket.destroy()
  }
}
