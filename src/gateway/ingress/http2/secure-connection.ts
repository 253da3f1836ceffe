import type { Socket } from 'node:net'
import { type SecureContext, TLSSocket } from 'node:tls'
import type { ConnectionStage } from '../../../base/limit/connection-shares.ts'
import { ClientConnection } from '../connection/connection.ts'
import type { IngressConnection } from '../connection/ingress-connection.ts'
import type { IngressContext } from '../ingress-context.ts'
import type { IngressListener } from '../ingress-listener.ts'
import { Http2Connection } from './http2-connection.ts'

/** In the order of preference (RFC 7301); without ALPN it is HTTP/1.1. */
const PROTOCOLS = ['h2', 'http/1.1', 'http/1.0']

export interface SecureConnectionOptions {
  readonly socket: Socket
  /** The certificate for a server name; undefined when the client named none. Asked each time. */
  readonly certificate: (serverName: string | undefined) => SecureContext
  readonly listener: IngressListener
  readonly context: IngressContext
  onClose(connection: SecureConnection): void
}

/** A visitor's TLS connection: first a handshake, then the HTTP that was agreed on in it. */
export class SecureConnection implements IngressConnection {
  readonly #socket: TLSSocket
  readonly #deadline: number
  readonly #openedAt: number
  #connection: IngressConnection | undefined
  #isStopping = false

  constructor({ socket, certificate, listener, context, onClose }: SecureConnectionOptions) {
    this.#openedAt = context.now
    this.#deadline = context.now + context.limits.headMs
    // Errors show on the TLS socket, which destroys this one.
    socket.on('error', () => {})
    const secured = new TLSSocket(socket, {
      isServer: true,
      secureContext: certificate(undefined),
      SNICallback: (name, done) => done(null, certificate(name.toLowerCase())),
      ALPNProtocols: PROTOCOLS,
    })
    this.#socket = secured
    secured.on('error', () => {})
    secured.on('close', () => onClose(this))
    secured.on('secure', () => {
      try {
        this.#connection = this.#agree(secured, listener, context)
        if (this.#isStopping) this.#connection.stop()
      } catch (err) {
        context.log.error({ err }, 'client connection failed')
        secured.destroy()
      }
    })
  }

  get stage(): ConnectionStage {
    return this.#connection?.stage ?? 'idle'
  }

  get idleSince(): number {
    return this.#connection?.idleSince ?? this.#openedAt
  }

  yieldPlace(): void {
    if (this.#connection) this.#connection.yieldPlace()
    else this.#socket.destroy()
  }

  /** A handshake that is under way goes on: the request comes right behind it. */
  stop(): void {
    this.#isStopping = true
    this.#connection?.stop()
  }

  destroy(): void {
    if (this.#connection) this.#connection.destroy()
    else this.#socket.destroy()
  }

  sweep(now: number): void {
    if (this.#connection) this.#connection.sweep(now)
    else if (now > this.#deadline) this.#socket.destroy()
  }

  checkFlood(): void {
    this.#connection?.checkFlood()
  }

  #agree(socket: TLSSocket, listener: IngressListener, context: IngressContext): IngressConnection {
    if (socket.alpnProtocol === 'h2') {
      // Node says so of sockets that a server of its own accepts; HTTP/2 would wait for it for ever.
      Object.assign(socket, { secureConnecting: false })
      return new Http2Connection({ socket, listener, context })
    }
    const connection = new ClientConnection({ socket, listener, context, onClose: () => {} })
    connection.open()
    return connection
  }
}
