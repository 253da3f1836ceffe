import { once } from 'node:events'
import type { Socket } from 'node:net'
import { createServer, type Server, type TLSSocket } from 'node:tls'
import { StartError } from '../../base/app-error.ts'
import { withDeadline } from '../../base/deadline.ts'
import {
  formatListenAddress,
  type ListenAddress,
  listenProblem,
} from '../../base/listen-address.ts'
import type { KeptCertificate } from '../certificates/certificate-file.ts'
import { AgentConnection } from './agent-connection.ts'
import type { AgentDeps } from './agent-deps.ts'

/** Sockets in TLS handshakes are cut after this when the listener stops. */
const STOP_MS = 1_000

export interface AgentListenerOptions {
  readonly listen: ListenAddress
  readonly deps: AgentDeps
}

/** Where agents connect: TLS, then one session per connection. */
export class AgentListener {
  readonly #listen: ListenAddress
  readonly #deps: AgentDeps
  readonly #sockets = new Set<Socket>()
  readonly #connections = new Map<AgentConnection, Promise<void>>()
  #server: Server | undefined

  constructor({ listen, deps }: AgentListenerOptions) {
    this.#listen = listen
    this.#deps = deps
  }

  /** Listens and gives the real address. Throws a StartError when it is taken. */
  async start({ certPem, keyPem }: KeptCertificate): Promise<ListenAddress> {
    const { limits, log } = this.#deps
    const server = createServer({
      cert: certPem,
      key: keyPem,
      minVersion: 'TLSv1.2',
      handshakeTimeout: limits.tlsHandshakeMs,
    })
    this.#server = server
    server.maxConnections = limits.connections
    server.on('connection', (socket: Socket) => this.#track(socket))
    server.on('secureConnection', (socket) => this.#accept(socket))
    server.on('tlsClientError', (error, socket) => {
      log.debug({ reason: error.message, remote: socket.remoteAddress }, 'tls handshake failed')
      // Node leaves a socket open whose handshake has only timed out.
      socket.destroy()
    })
    server.on('drop', () => log.warn({ limit: limits.connections }, 'agent connection dropped'))
    server.listen(this.#listen.port, this.#listen.host)
    try {
      await once(server, 'listening')
    } catch (error) {
      throw new StartError(
        `Agents cannot connect on ${formatListenAddress(this.#listen)}: ${listenProblem(error)}.`,
        { cause: error },
      )
    }
    server.on('error', (error) => log.error({ err: error }, 'agent listener failed'))
    const address = server.address()
    const port = typeof address === 'object' && address ? address.port : this.#listen.port
    return { host: this.#listen.host, port }
  }

  /** Serves another certificate to connections that come from now on. */
  setCertificate({ certPem, keyPem }: KeptCertificate): void {
    this.#server?.setSecureContext({ cert: certPem, key: keyPem, minVersion: 'TLSv1.2' })
  }

  /** Stops accepting and says goodbye to every agent. */
  async stop(): Promise<void> {
    const server = this.#server
    if (!server) return
    this.#server = undefined
    const closed = new Promise((resolve) => server.close(resolve))
    for (const connection of this.#connections.keys()) connection.end('the gateway is stopping')
    const served = Promise.all(this.#connections.values())
    await withDeadline(served, STOP_MS, 'saying goodbye to agents').catch(() => {})
    for (const socket of this.#sockets) socket.destroy()
    await closed
  }

  #track(socket: Socket): void {
    this.#sockets.add(socket)
    socket.once('close', () => this.#sockets.delete(socket))
  }

  #accept(socket: TLSSocket): void {
    socket.setNoDelay(true)
    const remote = formatListenAddress({
      host: socket.remoteAddress ?? '',
      port: socket.remotePort ?? 0,
    })
    const connection = new AgentConnection(socket, remote, this.#deps)
    const served = connection.serve().finally(() => this.#connections.delete(connection))
    this.#connections.set(connection, served)
  }
}
