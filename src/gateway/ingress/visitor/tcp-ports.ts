import { createServer, type Server, type Socket } from 'node:net'
import { listenOn } from '../../../base/listen-address.ts'
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
  /** Local address to listen on. The addresses for visitors are in `addresses`. */
  readonly listenHost: string
  readonly addresses: TcpAddresses
  readonly context: IngressContext
  /** Each connection begins with a PROXY header of a load balancer. */
  readonly hasProxyProtocol?: boolean
  /** A connection was opened or closed. */
  onConnection(connection: PortConnection): void
  onClose(connection: PortConnection): void
}

/**
 * A port stays open this long without an endpoint. A cluster has to claim the address in PostgreSQL before the
 * registry has it.
 */
const UNCLAIMED_MS = 30_000

/**
 * Ports of TCP endpoints. The gateway listens on a port while its address is online or its device is
 * disconnected. The system refuses connections to the other ports of the range.
 */
export class TcpPorts {
  readonly #options: TcpPortsOptions
  readonly #registry: EndpointRegistry
  readonly #shares: ConnectionShares<PortConnection>
  /** Keyed by address. */
  readonly #servers = new Map<string, Server>()
  /** Ports whose endpoints the registry has not had yet, and when they are closed without one; monotonic. */
  readonly #unclaimed = new Map<string, number>()
  #revision = -1
  #isStopped = false

  constructor(options: TcpPortsOptions) {
    this.#options = options
    this.#registry = options.context.registry
    this.#shares = new ConnectionShares({ capacity: options.context.limits.connections })
  }

  /** Number of open ports. */
  get size(): number {
    return this.#servers.size
  }

  /** Listens for cloud endpoints, and for visitors that wait for disconnected devices. */
  async start(): Promise<void> {
    for (const { host } of this.#registry.tcpAddresses()) await this.#tryToOpen(host)
  }

  /** The previous process may still listen there. Each sweep tries again. */
  async #tryToOpen(address: string): Promise<void> {
    if (!this.#options.addresses.has(address)) return
    await this.open(address).catch(() => {})
  }

  /** Listens on the port of an address, which must be in the registry within `UNCLAIMED_MS`. */
  async open(address: string): Promise<void> {
    const { addresses, listenHost, context } = this.#options
    // Only policies use internal addresses.
    if (bindingOf(address) === 'internal') return
    if (this.#isStopped) return
    if (this.#servers.has(address)) {
      // Its endpoint may have ended a moment ago.
      if (!this.#unclaimed.has(address)) this.#awaitClaim(address)
      return
    }
    const server = createServer({ allowHalfOpen: true, pauseOnConnect: true }, (socket) => {
      if (this.#options.hasProxyProtocol) this.#greet(socket, address)
      else this.#accept(socket, address)
    })
    this.#servers.set(address, server)
    this.#unclaimed.set(address, Number.POSITIVE_INFINITY)
    try {
      await listenOn(server, { host: listenHost, port: addresses.portOf(address) })
      server.on('error', (err) => context.log.error({ err, address }, 'listener failed'))
      this.#awaitClaim(address)
    } catch (error) {
      this.#unclaimed.delete(address)
      this.#servers.delete(address)
      throw addresses.refuse(address, error)
    }
  }

  #awaitClaim(address: string): void {
    this.#unclaimed.set(address, this.#options.context.clock.monotonic() + UNCLAIMED_MS)
  }

  /** Closes the ports of addresses that are gone, and opens missing ports. */
  sweep(): void {
    const { revision } = this.#registry
    if (revision === this.#revision && this.#unclaimed.size === 0) return
    this.#revision = revision
    const { routes, clock } = this.#options.context
    const now = clock.monotonic()
    for (const [address, server] of this.#servers) {
      if (routes.match(address, 'tcp')) this.#unclaimed.delete(address)
      else if (now >= (this.#unclaimed.get(address) ?? now)) {
        this.#unclaimed.delete(address)
        this.#servers.delete(address)
        server.close()
      }
    }
    for (const { host } of this.#registry.tcpAddresses()) {
      if (!this.#servers.has(host)) void this.#tryToOpen(host)
    }
  }

  /** Closes all ports. The caller closes the connections. */
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

  /** Relays to the node that serves the endpoint. */
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
