import { type AddressInfo, createServer, type Server, type Socket } from 'node:net'
import type { Duplex } from 'node:stream'
import { StartError } from '../../base/app-error.ts'
import type { Clock } from '../../base/clock.ts'
import {
  formatListenAddress,
  isLoopback,
  type ListenAddress,
  listenOn,
  listenProblem,
} from '../../base/listen-address.ts'
import type { Logger } from '../../base/logger.ts'
import { ConnectionShares } from '../../base/net/connection-shares.ts'
import { SharedReads } from '../../base/net/shared-reads.ts'
import type { TrustedProxies } from '../../base/net/trusted-proxies.ts'
import type { Stream } from '../../muxado/stream.ts'
import type { AddressTables } from '../../policy/exchange/address-tables.ts'
import type { Asker } from '../../policy/outbound/outbound-allow.ts'
import type { ServedCertificate } from '../certificates/certificate-file.ts'
import type { EndpointRegistry } from '../endpoints/endpoint-registry.ts'
import type { OwnRoutes, Route, Routes } from '../endpoints/routes.ts'
import type { TcpAddresses } from '../endpoints/tcp-addresses.ts'
import type { VisitorLinks } from '../ports/membership.ts'
import { BufferAccount } from '../streams/buffer-account.ts'
import { AskSeal } from './common/ask-seal.ts'
import { type ClientSocket, WriteCoalescer } from './common/client-socket.ts'
import { ErrorLog } from './common/error-log.ts'
import { type ErrorPages, NO_PAGES } from './common/error-reply.ts'
import {
  INGRESS_LIMITS,
  type IngressChallenges,
  type IngressContext,
  type IngressLimits,
} from './common/ingress-context.ts'
import type { IngressListener } from './common/ingress-listener.ts'
import { PieceShares } from './syntax/piece-shares.ts'
import { ClientConnection } from './visitor/connection.ts'
import { InternalSocket } from './visitor/internal-socket.ts'
import { PeerIngress, type PeerOrigin } from './visitor/peer-ingress.ts'
import { ProxyGreeting } from './visitor/proxy-greeting.ts'
import { SecureConnection } from './visitor/secure-connection.ts'
import { TcpPorts } from './visitor/tcp-ports.ts'
import type { IngressConnection } from './visitor/visitor.ts'

/** How often a stop looks whether the last connection has closed. */
const STOP_STEP_MS = 20
/** Probes find out about a visitor that went away without a word, hours before a stream is idle. */
const VISITOR_SOCKETS = {
  allowHalfOpen: true,
  noDelay: true,
  keepAlive: true,
  keepAliveInitialDelay: 60_000,
}

export interface IngressTls {
  /** Returns the certificate for a server name; undefined if the client sent no name. Called each time. */
  served(serverName: string | undefined): ServedCertificate
  /** Issues the certificate of an online host. Undefined if the host has one. Never rejects. */
  cover?(online: Pick<Route, 'host' | 'ownerId'>): Promise<void> | undefined
}

export interface IngressOptions {
  readonly registry: EndpointRegistry
  /** Routes and links of other nodes, if there are any. */
  readonly routes?: Routes | undefined
  /** For visitors from there. */
  readonly ownRoutes?: OwnRoutes | undefined
  readonly peers?: VisitorLinks | undefined
  readonly http: ListenAddress
  readonly https: ListenAddress
  readonly tls: IngressTls
  /** Answers to challenges of an ACME authority, if there are any. */
  readonly challenges?: IngressChallenges | undefined
  /** Pages of accounts for errors; default: only the gateway's page. */
  readonly errorPages?: ErrorPages | undefined
  /** Host and addresses for TCP endpoints; undefined: no TCP endpoints. */
  readonly tcp?: { readonly listenHost: string; readonly addresses: TcpAddresses } | undefined
  /** With which the depth of asks is sealed; all gateways of a site have the same. */
  readonly askKey?: Buffer | undefined
  readonly log: Logger
  readonly clock: Clock
  readonly limits?: Partial<IngressLimits>
  /** Buffered bytes of the whole gateway. */
  readonly buffers?: BufferAccount
  /** Default: its own. */
  readonly reads?: SharedReads | undefined
  /** Tables of visitors' addresses. */
  readonly addresses?: AddressTables | undefined
  /** Proxies in front, which may name the client; undefined if no proxy is trusted. */
  readonly proxies?: TrustedProxies | undefined
  /** Each connection of a visitor begins with a PROXY header of one of them. */
  readonly hasProxyProtocol?: boolean
}

export interface IngressAddresses {
  readonly http: ListenAddress
  readonly https: ListenAddress
}

/** The public front of the endpoints in a registry: HTTP, HTTPS, and TCP ports. */
export class Ingress {
  readonly #options: IngressOptions
  readonly #context: IngressContext & { now: number }
  readonly #servers: Server[] = []
  readonly #connections = new Set<IngressConnection>()
  readonly #ports: TcpPorts | undefined
  readonly #entrance: PeerIngress
  readonly #stopping = new AbortController()
  #stopped: Promise<void> | undefined

  constructor(options: IngressOptions) {
    const { registry, clock, limits, buffers = new BufferAccount() } = options
    this.#options = options
    const log = options.log.child({ part: 'ingress' })
    this.#context = {
      registry,
      routes: options.routes ?? registry,
      ownRoutes: options.ownRoutes ?? registry,
      peers: options.peers,
      clock,
      log,
      limits: { ...INGRESS_LIMITS, ...limits },
      buffers,
      coalescer: new WriteCoalescer(),
      reads: options.reads ?? new SharedReads(),
      askSeal: new AskSeal(clock, options.askKey),
      addresses: options.addresses,
      proxies: options.proxies,
      http2Streams: { open: 0 },
      pieceShares: new PieceShares(clock),
      challenges: options.challenges,
      errorPages: options.errorPages ?? NO_PAGES,
      errorLog: new ErrorLog(log, clock),
      now: clock.monotonic(),
    }
    this.#entrance = new PeerIngress({
      context: this.#context,
      certificate: (serverName) => options.tls.served(serverName),
      onConnection: (connection) => this.#connections.add(connection),
      onClose: (closed) => this.#connections.delete(closed),
    })
    this.#ports =
      options.tcp &&
      new TcpPorts({
        ...options.tcp,
        context: this.#context,
        hasProxyProtocol: options.hasProxyProtocol === true,
        onConnection: (connection) => this.#connections.add(connection),
        onClose: (closed) => this.#connections.delete(closed),
      })
  }

  /** Listens and gives the real addresses. Throws a StartError when one is taken. */
  async start(): Promise<IngressAddresses> {
    const { http, https } = this.#options
    const plain: IngressListener = { scheme: 'http', redirectsToHttps: !isLoopback(http.host) }
    const secure: IngressListener = { scheme: 'https', redirectsToHttps: false }
    const addresses = {
      http: await this.#listen(http, 'GATEWAY_HTTP_LISTEN', (socket) =>
        this.#accept(socket, plain),
      ),
      https: await this.#listen(https, 'GATEWAY_HTTPS_LISTEN', (socket) =>
        this.#secure(socket, secure),
      ),
    }
    await this.#ports?.start()
    // Their sleep rejects when the ingress stops.
    this.#sweepUntilStopped().catch(() => {})
    this.#checkFloodsUntilStopped().catch(() => {})
    return addresses
  }

  /** A visitor of another node; the stream's handler is set when it returns. */
  acceptPeer(stream: Stream, origin: PeerOrigin): void {
    this.#entrance.accept(stream, origin)
  }

  /** See `PolicyReach`. */
  connectInternal(
    url: URL,
    ownerId: string | null,
    asker = ownAsker(this.#context.clock),
  ): Duplex | undefined {
    if (!this.#context.routes.hasInternal(url, ownerId)) return undefined
    const scheme = url.protocol === 'http:' ? 'http' : 'https'
    const { client, gateway } = InternalSocket.pair(asker.connection)
    this.#accept(gateway, { scheme, redirectsToHttps: false, internal: { asker, ownerId } })
    return client
  }

  /** Listens on a TCP address. Throws ServiceError 334 when it cannot be had. */
  async openAddress(address: string): Promise<void> {
    await this.#ports?.open(address)
  }

  /** See `PolicyReach`. */
  sealDepth(depth: number): string {
    return this.#context.askSeal.seal(depth)
  }

  /** Stops accepting, lets exchanges under way end within `deadlineMs`, closes the rest. */
  stop(deadlineMs: number): Promise<void> {
    this.#stopped ??= this.#stop(deadlineMs)
    return this.#stopped
  }

  async #stop(deadlineMs: number): Promise<void> {
    const closed = this.#servers.map((server) => new Promise((resolve) => server.close(resolve)))
    const portsClosed = this.#ports?.stop()
    for (const connection of this.#connections) connection.stop()
    const { clock } = this.#options
    const until = clock.monotonic() + deadlineMs
    while (this.#connections.size > 0 && clock.monotonic() < until) await clock.sleep(STOP_STEP_MS)
    for (const connection of this.#connections) connection.destroy()
    this.#stopping.abort()
    await Promise.all([...closed, portsClosed])
  }

  async #listen(
    address: ListenAddress,
    setting: string,
    accept: (socket: Socket) => IngressConnection,
  ): Promise<ListenAddress> {
    const { log, limits } = this.#context
    const shares = new ConnectionShares<IngressConnection>({ capacity: limits.connections })
    const admit = (socket: Socket, connection: IngressConnection) => {
      if (shares.admit(connection, socket.remoteAddress)) {
        socket.once('close', () => shares.release(connection))
      } else {
        log.debug({ limit: limits.connections }, 'connection dropped')
        connection.destroy()
      }
    }
    const server = createServer(VISITOR_SOCKETS, (socket) => {
      if (!this.#options.hasProxyProtocol) {
        admit(socket, accept(socket))
        return
      }
      const greeting = new ProxyGreeting({
        socket,
        context: this.#context,
        onVisitor: () => {
          admit(socket, accept(socket))
          // TLS reads by 'readable': a resumed socket would drop its bytes.
          if (socket.listenerCount('data') > 0) socket.resume()
        },
        onClose: (closed) => {
          this.#connections.delete(closed)
          shares.release(closed)
        },
      })
      this.#connections.add(greeting)
      if (!shares.admit(greeting, socket.remoteAddress)) greeting.destroy()
    })
    this.#servers.push(server)
    try {
      await listenOn(server, address)
    } catch (error) {
      throw new StartError(
        `Visitors cannot connect on ${formatListenAddress(address)}: ${listenProblem(error, setting)}.`,
        { cause: error },
      )
    }
    server.on('error', (err) => log.error({ err }, 'listener failed'))
    return { host: address.host, port: (server.address() as AddressInfo).port }
  }

  #secure(socket: Socket, listener: IngressListener): IngressConnection {
    const { tls } = this.#options
    const connection = new SecureConnection({
      socket,
      certificate: (serverName) => tls.served(serverName),
      cover: (route) => tls.cover?.(route),
      listener,
      context: this.#context,
      onClose: (closed) => this.#connections.delete(closed),
    })
    this.#connections.add(connection)
    return connection
  }

  #accept(socket: ClientSocket, listener: IngressListener): ClientConnection {
    const connection = new ClientConnection({
      socket,
      listener,
      context: this.#context,
      onClose: (closed) => this.#connections.delete(closed),
    })
    this.#connections.add(connection)
    connection.open()
    return connection
  }

  async #checkFloodsUntilStopped(): Promise<void> {
    const { clock } = this.#options
    for (;;) {
      await clock.sleep(this.#context.limits.floodMs, this.#stopping.signal)
      for (const connection of this.#connections) connection.checkFlood()
    }
  }

  async #sweepUntilStopped(): Promise<void> {
    const { clock } = this.#options
    for (;;) {
      await clock.sleep(this.#context.limits.sweepMs, this.#stopping.signal)
      this.#context.now = clock.monotonic()
      for (const connection of this.#connections) connection.sweep(this.#context.now)
      this.#ports?.sweep()
    }
  }
}

/** Origin of the gateway's own key requests: no visitor caused them. */
function ownAsker(clock: Clock): Asker {
  const [clientIp, serverIp] = ['127.0.0.1', '127.0.0.1']
  const ports = { clientPort: 0, serverPort: 0 }
  const startedAt = clock.now()
  return {
    connection: { clientIp, serverIp, ...ports, startedAt, bytesIn: 0, bytesOut: 0 },
    depth: 1,
  }
}
