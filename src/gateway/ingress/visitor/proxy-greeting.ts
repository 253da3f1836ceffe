import type { Socket } from 'node:net'
import type { ConnectionStage } from '../../../base/net/connection-shares.ts'
import {
  type ConnectionEnds,
  decodeProxyProtocol,
  proxyHeaderLength,
} from '../../../base/net/proxy-protocol.ts'
import { plainAddress } from '../common/connection-facts.ts'
import type { IngressContext } from '../common/ingress-context.ts'
import type { IngressConnection } from './visitor.ts'

/** Load balancers add the client's certificate and similar data (PROXY protocol, 2.2.5). */
const MAX_HEADER_BYTES = 2_048

export interface ProxyGreetingOptions {
  readonly socket: Socket
  readonly context: IngressContext
  /** The socket has the addresses of the visitor, its data begins after the header, and it is paused. */
  onVisitor(): void
  onClose(greeting: ProxyGreeting): void
}

/**
 * Start of a connection from a load balancer: the PROXY header, which names the visitor. The connection is
 * closed if the header is invalid or the sender is not trusted.
 */
export class ProxyGreeting implements IngressConnection {
  readonly stage: ConnectionStage = 'idle'
  readonly idleSince: number
  readonly #options: ProxyGreetingOptions
  readonly #deadline: number
  #bytes = Buffer.alloc(0)

  constructor(options: ProxyGreetingOptions) {
    const { socket, context } = options
    this.#options = options
    this.idleSince = context.now
    this.#deadline = context.now + context.limits.headMs
    // Errors of the load balancer's connection end it; `close` follows.
    socket.on('error', ignore)
    socket.on('close', this.#onClose)
    socket.on('end', this.#onEnd)
    if (context.proxies?.trusts(this.#ip)) socket.on('readable', this.#onReadable)
    else this.#drop('untrusted-proxy-protocol')
  }

  yieldPlace(): void {
    this.destroy()
  }

  stop(): void {
    this.destroy()
  }

  destroy(): void {
    this.#options.socket.destroy()
  }

  sweep(now: number): void {
    if (now > this.#deadline) this.#drop('missing-proxy-protocol')
  }

  checkFlood(): void {}

  get #ip(): string {
    return plainAddress(this.#options.socket.remoteAddress ?? '')
  }

  readonly #onClose = () => this.#options.onClose(this)

  /** Health checks connect and send nothing. */
  readonly #onEnd = () => this.destroy()

  readonly #onReadable = () => {
    const { socket } = this.#options
    const chunk: Buffer | null = socket.read()
    if (!chunk) return
    this.#bytes = Buffer.concat([this.#bytes, chunk])
    try {
      const length = proxyHeaderLength(this.#bytes, MAX_HEADER_BYTES)
      if (length === undefined) return
      const ends = decodeProxyProtocol(this.#bytes.subarray(0, length))
      this.#pass(ends, this.#bytes.subarray(length))
    } catch {
      this.#drop('missing-proxy-protocol')
    }
  }

  #pass(ends: ConnectionEnds | undefined, rest: Buffer): void {
    const { socket, onClose, onVisitor } = this.#options
    socket.off('readable', this.#onReadable).off('end', this.#onEnd)
    socket.off('close', this.#onClose).off('error', ignore)
    socket.pause()
    if (rest.length > 0) socket.unshift(rest)
    if (ends) setEnds(socket, ends)
    onClose(this)
    onVisitor()
  }

  #drop(problem: 'missing-proxy-protocol' | 'untrusted-proxy-protocol'): void {
    this.#options.context.proxies?.note(problem, this.#ip)
    this.destroy()
  }
}

const ignore = () => {}

/** Replaces the addresses that the socket reports by the visitor's addresses. */
function setEnds(socket: Socket, ends: ConnectionEnds): void {
  const { clientIp, clientPort, serverIp, serverPort } = ends
  Object.defineProperties(socket, {
    remoteAddress: { value: clientIp },
    remotePort: { value: clientPort },
    localAddress: { value: serverIp },
    localPort: { value: serverPort },
  })
}
