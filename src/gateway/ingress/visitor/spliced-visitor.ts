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
  /** What waits for the visitor may have changed. */
  onHeld(): void
}

/** The visitor's end of a TCP connection. TLS may come to end on it, before anything is written. */
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

  /** Bytes that the visitor has not taken. */
  get heldBytes(): number {
    return this.#output.heldBytes
  }

  /** Bytes that it has taken, or its machine for it. */
  get takenBytes(): number {
    return this.#output.takenBytes
  }

  listen(): void {
    const socket = this.#socket
    const { onDrain, onClose } = this.#options
    socket.on('drain', () => {
      if (socket === this.#socket) onDrain()
    })
    // What went wrong with a visitor is the visitor's affair; `close` follows.
    socket.on('error', () => {})
    socket.on('close', () => {
      if (socket === this.#socket) onClose()
    })
  }

  /** TLS ends here: what counts from now on is what stands in it. */
  secure(secured: TLSSocket): void {
    const { context, onHeld } = this.#options
    this.#socket = secured
    this.#output = new ClientOutput(secured, context.coalescer, onHeld)
    this.#linger = new LingeringClose(secured, context.limits)
    this.listen()
  }

  /** Takes all bytes; false: wait for `onDrain`. */
  write(chunk: Buffer): boolean {
    return this.#output.write(chunk)
  }

  flush(): void {
    this.#output.flush()
  }

  /** Ends behind what was written. */
  end(): void {
    this.#output.end()
  }

  /** Breaks it off, so that the visitor sees that something is missing. */
  abort(): void {
    this.#socket.resetAndDestroy()
  }

  /** Looks after what was ended; `now` is monotonic. */
  sweepEnded(now: number): void {
    const verdict = this.#linger.sweep(now)
    if (verdict === 'abort') this.abort()
    else if (verdict === 'close') this.#socket.destroy()
  }
}

/** A peer that is gone without a word is noticed by the system, after this and some tries. */
const KEEP_ALIVE_MS = 60_000
/** Without a byte for so long, others need its place more, where there is none left. */
const QUIET_MS = 60_000

export interface SplicedVisitorOptions {
  /** Paused, and half-open when its peer has ended. */
  readonly socket: TransportSocket
  readonly context: IngressContext
  /** What it holds is too much: it has to be aborted. */
  onOverBudget(): void
  /** The socket is closed; before there was a splice, or after it. */
  onClose(): void
}

export interface SpliceOptions {
  readonly stream: ProxyStream
  readonly traffic: ExchangeTraffic
  write?(chunk: Buffer): boolean
  end?(): void
  /** Called once, when both directions are over. */
  onOver(bytesIn: number, bytesOut: number): void
}

/**
 * The visitor's end of a connection whose bytes go on as they are, on one stream for all its life. Nothing is
 * read of it before `splice`; what it holds is counted, and whether it moves.
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

  /** One that has moved nothing for a while gives its place to others: there is a table for all. */
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

  /** Whether the visitor has ended its direction, and all of it was read. */
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

  /** TLS ends here: what counts from now on is what stands in it. */
  secure(secured: TLSSocket): void {
    this.#socket.secure(secured)
  }

  /** Joins it to a stream. */
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

  /** Takes all bytes; false: the splice goes on when there is room. */
  write(chunk: Buffer): boolean {
    return this.#socket.write(chunk)
  }

  /** Ends behind what was written. */
  end(): void {
    this.#socket.end()
  }

  /** Breaks it off, so that the visitor sees that something is missing. */
  abort(): void {
    this.#socket.abort()
  }

  /** Looks at the deadlines; `now` is monotonic. */
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
    this.#meter.look(moved, this.#socket.heldBytes, now)
    this.#splice.sweep(now)
  }

  /** A mistake of ours ends this connection alone. */
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
