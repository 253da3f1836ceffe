import type { Writable } from 'node:stream'
import type { ClientSocket, WriteCoalescer } from '../common/client-socket.ts'
import type { IngressLimits } from '../common/ingress-context.ts'
import { ProgressWatch } from '../common/progress-watch.ts'
import { GrowingBuffer } from '../syntax/growing-buffer.ts'

/**
 * The last part of a connection, after its end was written (RFC 9112 9.6): first the client takes
 * what is left of the response, then it has a moment to close its side. Both are bounded: a client
 * that takes nothing is aborted, so that it cannot take what it has for all there is.
 */
export class LingeringClose {
  readonly #socket: Writable
  readonly #limits: IngressLimits
  readonly #watch: ProgressWatch
  /** Monotonic; set when the socket has flushed everything. */
  #deadline: number | undefined

  constructor(socket: Writable, limits: IngressLimits) {
    this.#socket = socket
    this.#limits = limits
    this.#watch = new ProgressWatch(limits)
  }

  /** What is to be done about the connection; `now` is monotonic. */
  sweep(now: number): 'wait' | 'close' | 'abort' {
    const { writableFinished, writableLength } = this.#socket
    if (!writableFinished) {
      const progress = { movedBytes: -writableLength, awaitedBodyBytes: undefined }
      return this.#watch.look(progress, now) ? 'abort' : 'wait'
    }
    this.#deadline ??= now + this.#limits.lingerMs
    return now > this.#deadline ? 'close' : 'wait'
  }
}

/** Smaller pieces are put together while the client does not take them. */
const SMALL_BYTES = 1_024

/** What goes to a client, through its socket. */
export class ClientOutput {
  readonly #socket: ClientSocket
  readonly #coalescer: WriteCoalescer
  readonly #onHeld: () => void
  /** Small pieces that wait for the socket; no more than the window of a stream. */
  readonly #backlog = new GrowingBuffer()
  #writtenBytes = 0
  #lastTick = 0

  /** `onHeld`: what is held here may have changed. */
  constructor(socket: ClientSocket, coalescer: WriteCoalescer, onHeld: () => void) {
    this.#socket = socket
    this.#coalescer = coalescer
    this.#onHeld = onHeld
  }

  /** Bytes that the client has not taken. */
  get heldBytes(): number {
    return this.#socket.writableLength + this.#backlog.length
  }

  /** Bytes that it has taken, or its machine for it. */
  get takenBytes(): number {
    return this.#writtenBytes - this.heldBytes
  }

  /** Takes all bytes; false: wait for the socket to drain. */
  write(chunk: Buffer): boolean {
    this.#writtenBytes += chunk.length
    // Each write that waits costs an object: a device that sends byte by byte would cost megabytes.
    if (chunk.length < SMALL_BYTES && this.#socket.writableNeedDrain) {
      this.#backlog.append(chunk)
      this.#onHeld()
      return false
    }
    this.flush()
    const hasRoom = this.#put(chunk)
    this.#onHeld()
    return hasRoom
  }

  /** Gives the socket what was put together for it. */
  flush(): void {
    if (this.#backlog.length > 0) this.#put(this.#backlog.take())
  }

  /** Ends behind what was written. */
  end(): void {
    this.flush()
    this.#socket.end()
  }

  /** For the coalescer: the tick is over. */
  uncork(): void {
    this.#socket.uncork()
    this.#onHeld()
  }

  #put(chunk: Buffer): boolean {
    const tick = this.#coalescer.tick()
    if (tick === this.#lastTick && this.#socket.writableCorked === 0) {
      this.#socket.cork()
      this.#coalescer.corked(this)
    }
    this.#lastTick = tick
    return this.#socket.write(chunk)
  }
}
