import type { Socket } from 'node:net'
import { type SecureContext, TLSSocket } from 'node:tls'
import type { ConnectionStage } from '../../../base/limit/connection-shares.ts'
import type { NameState } from '../../endpoints/host-table.ts'
import { ClientConnection } from '../connection/connection.ts'
import type { IngressConnection } from '../connection/ingress-connection.ts'
import { Http2Connection } from '../http2/http2-connection.ts'
import type { IngressContext } from '../ingress-context.ts'
import type { IngressListener } from '../ingress-listener.ts'
import { TcpConnection } from '../tcp/tcp-connection.ts'
import { ClientHelloReader } from './client-hello.ts'
import { nextSecureConnectionState, type SecureConnectionState } from './secure-connection-state.ts'

/** In the order of preference (RFC 7301); without ALPN it is HTTP/1.1. */
const PROTOCOLS = ['h2', 'http/1.1', 'http/1.0']

export interface SecureConnectionOptions {
  readonly socket: Socket
  /** The certificate for a server name; undefined when the client named none. */
  readonly certificate: (serverName: string | undefined) => SecureContext
  readonly listener: IngressListener
  readonly context: IngressContext
  onClose(connection: SecureConnection): void
}

/**
 * A visitor's connection to the secure listener. First it says whom it wants, in the clear; to a TLS
 * endpoint it goes on as it is, to the device. For all others TLS ends here, with the HTTP that
 * was agreed on.
 */
export class SecureConnection implements IngressConnection {
  readonly #options: SecureConnectionOptions
  readonly #socket: Socket
  readonly #deadline: number
  readonly #openedAt: number
  #state: SecureConnectionState
  #isStopping = false

  constructor(options: SecureConnectionOptions) {
    const { socket, context, onClose } = options
    this.#options = options
    this.#socket = socket
    this.#openedAt = context.now
    this.#deadline = context.now + context.limits.headMs
    this.#state = { name: 'greeting', hello: new ClientHelloReader() }
    // What went wrong with a visitor is the visitor's affair; `close` follows.
    socket.on('error', () => {})
    socket.on('close', () => {
      if (this.#state.name !== 'served') this.#become({ name: 'over' })
      onClose(this)
    })
    socket.on('readable', this.#onReadable)
    socket.on('end', this.#onEnd)
  }

  get stage(): ConnectionStage {
    return this.#state.name === 'served' ? this.#state.connection.stage : 'idle'
  }

  get idleSince(): number {
    return this.#state.name === 'served' ? this.#state.connection.idleSince : this.#openedAt
  }

  yieldPlace(): void {
    if (this.#state.name === 'served') this.#state.connection.yieldPlace()
    else this.#drop()
  }

  /** A handshake that is under way goes on: the request comes right behind it. */
  stop(): void {
    this.#isStopping = true
    if (this.#state.name === 'served') this.#state.connection.stop()
  }

  destroy(): void {
    if (this.#state.name === 'served') this.#state.connection.destroy()
    else this.#drop()
  }

  sweep(now: number): void {
    if (this.#state.name === 'served') this.#state.connection.sweep(now)
    else if (now > this.#deadline) this.#drop()
  }

  checkFlood(): void {
    if (this.#state.name === 'served') this.#state.connection.checkFlood()
  }

  readonly #onReadable = () => this.#guard(() => this.#readHello())
  /** Half-open connections are for those who have said something. */
  readonly #onEnd = () => this.#drop()

  #readHello(): void {
    if (this.#state.name !== 'greeting') return
    const { hello } = this.#state
    for (;;) {
      const chunk: Buffer | null = this.#socket.read()
      if (!chunk) return
      const verdict = hello.read(chunk)
      if (verdict.kind === 'partial') continue
      this.#socket.off('readable', this.#onReadable).off('end', this.#onEnd)
      if (verdict.kind === 'too-large') {
        this.#drop()
        return
      }
      // Whoever goes on with it reads it from the start.
      const bytes = hello.take()
      this.#socket.unshift(bytes)
      this.#route(verdict.kind === 'hello' ? verdict.serverName : undefined, bytes.length)
      return
    }
  }

  #route(serverName: string | undefined, helloBytes: number): void {
    if (serverName !== undefined && this.#find(serverName)) this.#passOn(serverName, helloBytes)
    else this.#shakeHands(serverName)
  }

  /** The TLS endpoint that has a name, or had it a moment ago. */
  #find(serverName: string): NameState | undefined {
    const found = this.#options.context.registry.match(serverName, 'tls')
    return found?.protocol === 'tls' ? found : undefined
  }

  #passOn(serverName: string, helloBytes: number): void {
    const { context } = this.#options
    const connection = new TcpConnection({
      socket: this.#socket,
      context,
      waitingBytes: helloBytes + this.#socket.readableHighWaterMark,
      find: () => this.#find(serverName),
      onClose: () => {},
    })
    this.#serve(connection)
    connection.start()
  }

  #shakeHands(serverName: string | undefined): void {
    const { certificate } = this.#options
    const secured = new TLSSocket(this.#socket, {
      isServer: true,
      secureContext: certificate(serverName),
      ALPNProtocols: PROTOCOLS,
    })
    this.#become({ name: 'handshake', secured })
    secured.on('error', () => {})
    // Who leaves in the middle of it would be waited for, as half-open connections are.
    secured.on('end', () => {
      if (this.#state.name === 'handshake') this.#drop()
    })
    secured.on('secure', () =>
      this.#guard(() => {
        if (this.#state.name === 'handshake') this.#serve(this.#agree(secured))
      }),
    )
  }

  #agree(socket: TLSSocket): IngressConnection {
    const { listener, context } = this.#options
    if (socket.alpnProtocol === 'h2') {
      // Node says so of sockets that a server of its own accepts; HTTP/2 would wait for it for ever.
      Object.assign(socket, { secureConnecting: false })
      return new Http2Connection({ socket, listener, context })
    }
    const connection = new ClientConnection({ socket, listener, context, onClose: () => {} })
    connection.open()
    return connection
  }

  #serve(connection: IngressConnection): void {
    this.#become({ name: 'served', connection })
    if (this.#isStopping) connection.stop()
  }

  #drop(): void {
    const secured = this.#state.name === 'handshake' ? this.#state.secured : undefined
    ;(secured ?? this.#socket).destroy()
  }

  #become(next: SecureConnectionState): void {
    this.#state = nextSecureConnectionState(this.#state, next)
  }

  #guard(step: () => void): void {
    try {
      step()
    } catch (err) {
      this.#options.context.log.error({ err }, 'client connection failed')
      this.#drop()
    }
  }
}
