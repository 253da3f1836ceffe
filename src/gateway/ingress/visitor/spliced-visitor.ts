import type { TLSSocket } from 'node:tls'
import type { ConnectionStage } from '../../../base/net/connection-shares.ts'
import { BufferClaim, type BufferHolder } from '../../streams/buffer-account.ts'
import type { Pace, ProxyStream } from '../../streams/proxy-stream.ts'
import type { TransportSocket } from '../common/client-socket.ts'
import type { ExchangeTraffic } from '../common/exchange-traffic.ts'
import type { IngressContext } from '../common/ingress-context.ts'
import { RateMeter } from '../common/progress-watch.ts'
import { Upgrade } from '../exchange/upgrade.ts'
import { ClientOutput, LingeringClose } from './client-output.ts'

interface VisitorSocketOptions {
  readonly socket: TransportSocket
  readonly context: IngressContext
  onDrain(): void
  onClose(): void
  /** The number of bytes that wait for the visitor may have changed. */
  onHeld(): void
}

/** The visitor's end of a TCP connection. Before anything is written, TLS may begin to end on it. */
class VisitorSocket {
  readonly #options: VisitorSocketOptions
  #socket: TransportSocket
  #output: ClientOutput
  #linger: LingeringClose

  constructor(options: VisitorSocketOptions) {
    this.#options = options
    const { socket, context, onHeld } = options
    this.#socket = socket
    this.#output = new ClientOutput(socket, context.coalescer, onHeld)
    this.#linger = new LingeringClose(socket, context.limits)
  }

  get socket(): TransportSocket {
    return this.#socket
  }

  /** Bytes written here that the socket has not passed to the system. */
  get heldBytes(): number {
    return this.#output.heldBytes
  }

  /** Written bytes that are no longer held here. */
  get takenBytes(): number {
    return this.#output.takenBytes
  }

  listen(): void {
    const socket = this.#socket
    const { onDrain, onClose } = this.#options
    socket.on('drain', () => {
      if (socket === this.#socket) onDrain()
    })
    // Visitor errors need no handling: `close` follows.
    socket.on('error', () => {})
    socket.on('close', () => {
      if (socket === this.#socket) onClose()
    })
  }

  /** TLS ends here: from now on the bytes inside TLS are counted. */
  secure(secured: TLSSocket): void {
    const { context, onHeld } = this.#options
    this.#socket = secured
    this.#output = new ClientOutput(secured, context.coalescer, onHeld)
    this.#linger = new LingeringClose(secured, context.limits)
    this.listen()
  }

  /** Accepts all bytes; false: wait for `onDrain`. */
  write(chunk: Buffer): boolean {
    return this.#output.write(chunk)
  }

  flush(): void {
    this.#output.flush()
  }

  /** Half-closes the connection after earlier writes. */
  end(): void {
    this.#output.end()
  }

  /** Resets the connection, so that the visitor sees that data is missing. */
  abort(): void {
    this.#socket.resetAndDestroy()
  }

  /** Watches a connection that has ended; `now` is monotonic. */
  sweepEnded(now: number): void {
    const verdict = this.#linger.sweep(now)
    if (verdict === 'abort') this.abort()
    else if (verdict === 'close') this.#socket.destroy()
  }
}

/** Idle time before the system probes the peer. After some unanswered probes it reports a lost peer. */
const KEEP_ALIVE_MS = 60_000
/** After this time without traffic, a connection may lose its place if no other is free. */
const QUIET_MS = 60_000

export interface SplicedVisitorOptions {
  /** Paused, and half-open after its peer has ended. */
  readonly socket: TransportSocket
  readonly context: IngressContext
  /** It holds too many bytes and must be aborted. */
  onOverBudget(): void
  /** The socket has closed, before or after a splice. */
  onClose(): void
}

export interface SpliceOptions {
  readonly stream: ProxyStream
  readonly traffic: ExchangeTraffic
  write?(chunk: Buffer): boolean
  end?(): void
  /** Called once, when both directions have ended. */
  onOver(bytesIn: number, bytesOut: number): void
}

/**
 * The visitor's end of a connection whose bytes pass unchanged on one stream for its whole life. Nothing is
 * read from it before `splice`. Its held bytes and its progress are counted.
 */
export class SplicedVisitor implements BufferHolder {
  readonly claim: BufferClaim
  readonly #options: SplicedVisitorOptions
  readonly #socket: VisitorSocket
  readonly #meter = new RateMeter()
  #splice: Upgrade | undefined
  #moved = 0
  #movedAt: number

  constructor(options: SplicedVisitorOptions) {
    const { socket, context } = options
    this.#options = options
    this.#movedAt = context.now
    this.claim = new BufferClaim(this, context.buffers)
    this.#socket = new VisitorSocket({
      socket,
      context,
      onDrain: () => this.guard(() => this.#onDrain()),
      onClose: () => this.guard(() => this.#onClose()),
      onHeld: () => this.#countHeld(),
    })
  }

  listen(): void {
    const { socket } = this.#socket
    socket.setNoDelay(true)
    socket.setKeepAlive(true, KEEP_ALIVE_MS)
    this.#socket.listen()
  }

  /** A connection without recent traffic gives its place to others, because all share one table. */
  get stage(): ConnectionStage {
    if (!this.#splice) return 'awaited'
    return this.#options.context.now - this.#movedAt < QUIET_MS ? 'busy' : 'awaited'
  }

  get idleSince(): number {
    return this.#movedAt
  }

  get pace(): Pace {
    return { rate: this.#meter.rate, isHeldUp: this.#socket.heldBytes > 0 }
  }

  /** Whether the visitor has ended its direction and all of its data was read. */
  get hasEnded(): boolean {
    return this.#socket.socket.readableEnded
  }

  /** See `BufferHolder`. */
  get heldBytes(): number {
    return this.#socket.heldBytes + (this.#splice?.heldBytes ?? 0)
  }

  /** See `BufferHolder`. */
  get movedBytes(): number {
    return this.#socket.takenBytes + (this.#splice?.receivedBytes ?? 0)
  }

  /** See `BufferHolder`. */
  onOverBudget(): void {
    this.#options.onOverBudget()
  }

  /** TLS ends here: from now on the bytes inside TLS are counted. */
  secure(secured: TLSSocket): void {
    this.#socket.secure(secured)
  }

  /** Joins the connection to a stream. */
  splice({ stream, traffic, onOver, ...own }: SpliceOptions): Upgrade {
    const { limits } = this.#options.context
    const { socket } = this.#socket
    const splice = new Upgrade({
      client: {
        pause: () => socket.pause(),
        resume: () => socket.resume(),
        write: own.write ?? ((chunk) => this.write(chunk)),
        end: own.end ?? (() => this.end()),
        abort: () => this.abort(),
      },
      stream,
      traffic,
      limits: { ...limits, silenceMs: limits.tcpIdleMs },
      onOver: (bytesIn, bytesOut) => {
        this.#splice = undefined
        onOver(bytesIn, bytesOut)
      },
    })
    this.#splice = splice
    socket.on('data', (chunk: Buffer) =>
      this.guard(() => {
        splice.onClientData(chunk)
        this.#countHeld()
      }),
    )
    socket.on('end', () => this.guard(() => splice.onClientEnd()))
    socket.resume()
    return splice
  }

  /** Accepts all bytes; false: the splice continues when there is room. */
  write(chunk: Buffer): boolean {
    return this.#socket.write(chunk)
  }

  /** Half-closes the connection after earlier writes. */
  end(): void {
    this.#socket.end()
  }

  /** Resets the connection, so that the visitor sees that data is missing. */
  abort(): void {
    this.#socket.abort()
  }

  /** Checks the deadlines; `now` is monotonic. */
  sweep(now: number, isOver: boolean): void {
    this.#countHeld()
    if (isOver) {
      this.#socket.sweepEnded(now)
      return
    }
    if (!this.#splice) return
    const moved = this.movedBytes
    if (moved !== this.#moved) this.#movedAt = now
    this.#moved = moved
    this.#meter.measure(moved, this.#socket.heldBytes, now)
    this.#splice.sweep(now)
  }

  /** Runs a step. A bug ends only this connection. */
  guard(step: () => void): void {
    try {
      step()
    } catch (err) {
      this.#options.context.log.error({ err }, 'connection failed')
      this.abort()
    }
  }

  #onDrain(): void {
    this.#socket.flush()
    this.#countHeld()
    if (!this.#socket.socket.writableNeedDrain) this.#splice?.onClientRoom()
  }

  #onClose(): void {
    this.claim.close()
    this.#options.onClose()
    this.#splice?.onClientClose()
  }

  #countHeld(): void {
    this.claim.update(this.#options.context.now)
  }
}
