import type { Socket } from 'node:net'
import { createServer, type Server, type TLSSocket } from 'node:tls'
import { StartError } from '../../base/app-error.ts'
import { withDeadline } from '../../base/deadline.ts'
import {
  formatListenAddress,
  type ListenAddress,
  listenOn,
  listenProblem,
} from '../../base/listen-address.ts'
import {
  ConnectionShares,
  type ConnectionStage,
  type SharedConnection,
} from '../../base/net/connection-shares.ts'
import { SharedReads } from '../../base/net/shared-reads.ts'
import { JOIN_PROTOCOL } from '../../join/join-messages.ts'
import { SlabPool } from '../../muxado/frame-writer.ts'
import type { KeptCertificate } from '../certificates/certificate-file.ts'
import { AgentConnection, type SessionMemory } from './agent-connection.ts'
import type { AgentDeps } from './agent-deps.ts'
import { sendAway } from './departure.ts'
import { JoinConnection, type JoinConnectionOptions, MAX_JOINS } from './join-connection.ts'

/** Sockets in TLS handshakes are cut after this time when the listener stops. */
const STOP_MS = 1_000
/** Idle time before the first TCP keep-alive probe, in milliseconds. */
const KEEP_ALIVE_MS = 60_000

export interface AgentListenerOptions {
  readonly listen: ListenAddress
  readonly deps: AgentDeps
  /** Lets devices join; unset: none can. */
  readonly invites?: JoinConnectionOptions['invites']
  /** Whether agents are accepted. Otherwise connections are closed, and agents try elsewhere. */
  readonly isOpen?: () => boolean
}

/** Listener for agents: TLS, then one session per connection. */
export class AgentListener {
  readonly #listen: ListenAddress
  readonly #deps: AgentDeps & SessionMemory
  readonly #isOpen: () => boolean
  readonly #invites: JoinConnectionOptions['invites'] | undefined
  readonly #joins = new ConnectionShares<JoinConnection>({ capacity: MAX_JOINS })
  readonly #sockets = new Map<string, AgentSocket>()
  readonly #shares: ConnectionShares<AgentSocket>
  readonly #connections = new Set<AgentConnection>()
  #server: Server | undefined

  constructor({ listen, deps, invites, isOpen = () => true }: AgentListenerOptions) {
    this.#invites = invites
    this.#isOpen = isOpen
    this.#listen = listen
    this.#deps = { ...deps, slabs: new SlabPool(), reads: new SharedReads() }
    this.#shares = new ConnectionShares({ capacity: deps.limits.connections })
  }

  /** Listens and returns the actual address. Throws a StartError if the address is taken. */
  async start({ certPem, keyPem }: KeptCertificate): Promise<ListenAddress> {
    const { limits, log } = this.#deps
    const server = createServer({
      cert: certPem,
      key: keyPem,
      minVersion: 'TLSv1.2',
      handshakeTimeout: limits.tlsHandshakeMs,
      keepAlive: true,
      keepAliveInitialDelay: KEEP_ALIVE_MS,
      // The SDK offers no protocol. Other clients get what they offer, as without ALPN.
      ALPNCallback: ({ protocols }) =>
        protocols.includes(JOIN_PROTOCOL) ? JOIN_PROTOCOL : protocols[0],
    })
    this.#server = server
    server.on('connection', (socket: Socket) => this.#admit(socket))
    server.on('secureConnection', (socket) => this.#accept(socket))
    server.on('tlsClientError', (error, socket) => {
      log.debug({ reason: error.message, remote: socket.remoteAddress }, 'tls handshake failed')
      // After a handshake timeout, Node.js leaves the socket open.
      socket.destroy()
    })
    try {
      await listenOn(server, this.#listen)
    } catch (error) {
      const problem = listenProblem(error, 'GATEWAY_AGENT_LISTEN')
      throw new StartError(
        `Agents cannot connect on ${formatListenAddress(this.#listen)}: ${problem}.${publicHint(error)}`,
        { cause: error },
      )
    }
    server.on('error', (error) => log.error({ err: error }, 'agent listener failed'))
    const address = server.address()
    const port = typeof address === 'object' && address ? address.port : this.#listen.port
    return { host: this.#listen.host, port }
  }

  /** Uses another certificate for new connections. */
  setCertificate({ certPem, keyPem }: KeptCertificate): void {
    this.#server?.setSecureContext({ cert: certPem, key: keyPem, minVersion: 'TLSv1.2' })
  }

  /**
   * Stops accepting, because another process now accepts on the same socket. Unauthenticated connections are
   * closed at once; the others leave as `sendAway` says.
   */
  stopAccepting(withinMs: number): void {
    this.#server?.close()
    for (const socket of this.#sockets.values()) if (socket.stage === 'idle') socket.yieldPlace()
    const departure = { ...this.#deps, withinMs }
    for (const session of [...this.#deps.sessions.all()]) void sendAway(session, departure)
  }

  /** Stops accepting and says goodbye to every agent. */
  async stop(): Promise<void> {
    const server = this.#server
    if (!server) return
    this.#server = undefined
    const closed = new Promise((resolve) => server.close(resolve))
    for (const connection of this.#connections) {
      connection.end('the gateway is stopping', 'gateway-left')
    }
    // Connections without a session need no goodbye. The others close by themselves once their data is sent.
    for (const socket of this.#sockets.values()) if (!socket.connection) socket.yieldPlace()
    await withDeadline(closed, STOP_MS, 'telling agents to reconnect elsewhere').catch(() => {})
    for (const socket of this.#sockets.values()) socket.yieldPlace()
    await closed
  }

  #admit(socket: Socket): void {
    if (!this.#isOpen()) {
      socket.destroy()
      return
    }
    const { limits, log } = this.#deps
    const key = formatListenAddress(remoteOf(socket))
    const counted = new AgentSocket(socket)
    if (!this.#shares.admit(counted, socket.remoteAddress)) {
      log.warn({ limit: limits.connections }, 'agent connection dropped: too many connections')
      socket.destroy()
      return
    }
    this.#sockets.set(key, counted)
    socket.once('close', () => {
      this.#shares.release(counted)
      this.#sockets.delete(key)
    })
  }

  #accept(socket: TLSSocket): void {
    socket.setNoDelay(true)
    const remote = remoteOf(socket)
    if (socket.alpnProtocol === JOIN_PROTOCOL) {
      this.#acceptJoin(socket, remote.host)
      return
    }
    const connection = new AgentConnection(socket, remote, this.#deps)
    this.#connections.add(connection)
    void connection.serve().finally(() => this.#connections.delete(connection))
    const counted = this.#sockets.get(formatListenAddress(remote))
    if (counted) counted.connection = connection
  }

  #acceptJoin(socket: TLSSocket, host: string): void {
    const { log, limits } = this.#deps
    const invites = this.#invites
    const address = plainAddress(host)
    const join =
      invites && new JoinConnection(socket, { invites, address, deadlineMs: limits.joinMs })
    if (!join || !this.#joins.admit(join, address)) {
      socket.destroy()
      return
    }
    socket.once('close', () => this.#joins.release(join))
    join.serve().catch((error) => log.error({ err: error, address }, 'device could not join'))
  }
}

/** Address without the prefix of an IPv4 address on an IPv6 socket. */
function plainAddress(host: string): string {
  return host.replace(/^::ffff:(?=\d+\.)/, '')
}

/** A socket below TLS, as counted by the listener. It belongs to no agent until an agent is online on it. */
class AgentSocket implements SharedConnection {
  readonly #socket: Socket
  readonly idleSince = performance.now()
  connection: AgentConnection | undefined

  constructor(socket: Socket) {
    this.#socket = socket
  }

  get stage(): ConnectionStage {
    return this.connection?.isOnline ? 'busy' : 'idle'
  }

  yieldPlace(): void {
    this.#socket.destroy()
  }
}

function remoteOf({ remoteAddress = '', remotePort = 0 }: Socket): ListenAddress {
  return { host: remoteAddress, port: remotePort }
}

/** Advice for an owner who has set the public name of the gateway as the address to listen on. */
function publicHint(error: unknown): string {
  const { code } = error as NodeJS.ErrnoException
  if (code !== 'EADDRNOTAVAIL') return ''
  return ' Use 0.0.0.0, and list the public name in GATEWAY_PUBLIC_NAMES.'
}
