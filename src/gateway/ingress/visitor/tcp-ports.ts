import { createServer, type Server, type Socket } from 'node:net'
import { listenOn, listenProblem } from '../../../base/listen-address.ts'
import { ConnectionShares } from '../../../base/net/connection-shares.ts'
import { bindingOf } from '../../endpoints/endpoint-host.ts'
import type { EndpointRegistry } from '../../endpoints/endpoint-registry.ts'
import type { TcpAddresses } from '../../endpoints/tcp-addresses.ts'
import type { IngressContext } from '../common/ingress-context.ts'
import { ProxyGreeting } from './proxy-greeting.ts'
import { RelayedConnection } from './relayed-connection.ts'
import { TcpConnection } from './tcp-connection.ts'

type PortConnection = TcpConnection | RelayedConnection | ProxyGreeting

export interface TcpPortsOptions {
  /** Where to listen; what visitors connect to stands in the addresses. */
  readonly listenHost: string
  readonly addresses: TcpAddresses
  readonly context: IngressContext
  /** Each connection begins with a PROXY header of a load balancer in front. */
  readonly hasProxyProtocol?: boolean
  /** A connection has come, or is gone. */
  onConnection(connection: PortConnection): void
  onClose(connection: PortConnection): void
}

/**
 * The ports that TCP endpoints have: each is listened on while its address is online, or its device
 * is away. Whoever connects to another one of the range is refused by the system.
 */
export class TcpPorts {
  readonly #options: TcpPortsOptions
  readonly #registry: EndpointRegistry
  readonly #shares: ConnectionShares<PortConnection>
  /** By address. */
  readonly #servers = new Map<string, Server>()
  /** Those that a bind has asked for and that stand in no registry yet. */
  readonly #opening = new Set<string>()
  #revision = -1
  #isStopped = false

  constructor(options: TcpPortsOptions) {
    this.#options = options
    this.#registry = options.context.registry
    this.#shares = new ConnectionShares({ capacity: options.context.limits.connections })
  }

  /** How many ports are listened on. */
  get size(): number {
    return this.#servers.size
  }

  /** Listens for cloud endpoints, and for those who wait for devices that are away. */
  async start(): Promise<void> {
    for (const { host } of this.#registry.tcpAddresses()) await this.#tryToOpen(host)
  }

  /** The process before may still listen there; it is tried again with each sweep. */
  async #tryToOpen(address: string): Promise<void> {
    if (!this.#options.addresses.has(address)) return
    await this.open(address).catch(() => {})
  }

  /** Listens; the address has to be in the registry when the caller's turn is over. */
  async open(address: string): Promise<void> {
    const { addresses, listenHost, context } = this.#options
    // Nobody but policies comes there.
    if (bindingOf(address) === 'internal') return
    if (this.#isStopped || this.#servers.has(address)) return
    const server = createServer({ allowHalfOpen: true, pauseOnConnect: true }, (socket) => {
      if (this.#options.hasProxyProtocol) this.#greet(socket, address)
      else this.#accept(socket, address)
    })
    this.#servers.set(address, server)
    this.#opening.add(address)
    try {
      await listenOn(server, { host: listenHost, port: addresses.portOf(address) })
      server.on('error', (err) => context.log.error({ err, address }, 'listener failed'))
    } catch (error) {
      this.#servers.delete(address)
      throw addresses.refuse(address, listenProblem(error))
    } finally {
      this.#opening.delete(address)
      // It may never come into the registry.
      this.#revision = -1
    }
  }

  /** Listens no more where nobody has the address. */
  sweep(): void {
    const { revision } = this.#registry
    if (revision === this.#revision) return
    this.#revision = revision
    for (const [address, server] of this.#servers) {
      if (this.#opening.has(address) || this.#options.context.routes.match(address, 'tcp')) continue
      this.#servers.delete(address)
      server.close()
    }
    for (const { host } of this.#registry.tcpAddresses()) {
      if (!this.#servers.has(host)) void this.#tryToOpen(host)
    }
  }

  /** Listens nowhere any more; connections are the caller's. */
  async stop(): Promise<void> {
    this.#isStopped = true
    const servers = [...this.#servers.values()]
    this.#servers.clear()
    await Promise.all(servers.map((server) => new Promise((resolve) => server.close(resolve))))
  }

  #greet(socket: Socket, address: string): void {
    const { context, onConnection, onClose } = this.#options
    const greeting = new ProxyGreeting({
      socket,
      context,
      onVisitor: () => this.#accept(socket, address),
      onClose: (closed) => {
        this.#shares.release(closed)
        onClose(closed)
      },
    })
    onConnection(greeting)
    if (!this.#shares.admit(greeting, socket.remoteAddress)) greeting.destroy()
  }

  #accept(socket: Socket, address: string): void {
    const { context } = this.#options
    const route = context.routes.match(address, 'tcp')
    if (route?.type === 'remote') this.#relay(socket, address)
    else this.#serve(socket, address)
  }

  /** To the node where the endpoint is at home. */
  #relay(socket: Socket, address: string): void {
    const { context, onConnection, onClose } = this.#options
    const connection = new RelayedConnection({
      socket,
      entry: { kind: 'tcp', address },
      context,
      find: (network) => context.routes.match(address, 'tcp', network),
      onClose: (closed) => {
        this.#shares.release(closed)
        onClose(closed)
      },
    })
    onConnection(connection)
    connection.start(this.#shares.admit(connection, socket.remoteAddress))
  }

  #serve(socket: Socket, address: string): void {
    const { context, onConnection, onClose } = this.#options
    const connection = new TcpConnection({
      socket,
      context,
      find: (network) => context.ownRoutes.match(address, 'tcp', network),
      onClose: (closed) => {
        this.#shares.release(closed)
        onClose(closed)
      },
    })
    onConnection(connection)
    const hasPlace = this.#shares.admit(connection, socket.remoteAddress)
    if (!hasPlace) context.log.debug({ address }, 'connection dropped')
    connection.start(hasPlace)
  }
}
