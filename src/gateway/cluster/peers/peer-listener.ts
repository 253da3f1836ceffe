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
/** Links of one node at once: one that serves, and one that it does not know to be gone. */
const LINKS_OF_NODE = 3

export interface PeerListenerOptions {
  readonly listen: ListenAddress
  readonly identity: PeerIdentity
  readonly ports: PublicPorts
  /**
   * Whether a node that has a certificate of the cluster is one of it still: it may be forgotten.
   * Undefined while nobody can say so; then it is asked to try again.
   */
  readonly isKnown: (nodeId: string) => Promise<boolean | undefined>
  /** A visitor's stream from another node; its handler is to be set before returning. */
  readonly onVisitor: (stream: Stream, origin: PeerSession) => void
  /** Answers what another node asks; without it, nothing may be asked. */
  readonly onQuestion?: (message: unknown) => Promise<object>
  readonly log: Logger
  readonly clock: Clock
}

/** Where other nodes connect: TLS lets nobody in without a certificate of the cluster. */
export class PeerListener {
  readonly #options: PeerListenerOptions
  readonly #shares = new ConnectionShares<PeerConnection>({ capacity: CONNECTIONS })
  readonly #connections = new Map<Socket, PeerConnection>()
  readonly #sessions = new Set<PeerSession>()
  #server: Server | undefined
  #closed: Promise<void> | undefined

  constructor(options: PeerListenerOptions) {
    this.#options = { ...options, log: options.log.child({ room: 'peers' }) }
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
      // Where it is a node whose certificate has run out, the link from here to it says so.
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

  /** Ends the links of those that are none of the cluster any more; who is not welcome hears why. */
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

  /** Ends all links to here: who is under way on one is broken off. */
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
    // What went wrong with a connection shows in its end.
    socket.on('error', () => {})
    const nodeId = peerOf(socket)
    // TLS lets those through who name no protocol at all.
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

  /** The newest may be the only one that the node has still: those that never greeted go first. */
  #makeRoom(nodeId: string): void {
    const own = [...this.#sessions].filter((session) => session.nodeId === nodeId)
    if (own.length < LINKS_OF_NODE) return
    const oldest = own.find(({ isWelcome }) => !isWelcome) ?? own[0]
    if (!oldest) return
    this.#sessions.delete(oldest)
    oldest.drop('replaced by a newer link of the node')
  }
}

/** A connection as it is counted: until its node is welcome, it is anybody's. */
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
