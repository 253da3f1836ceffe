import type { Writable } from 'node:stream'
import type { ClientSocket, WriteCoalescer } from '../common/client-socket.ts'
import type { IngressLimits } from '../common/ingress-context.ts'
import { ProgressWatch } from '../common/progress-watch.ts'
import { GrowingBuffer } from '../syntax/growing-buffer.ts'

/**
 * End of a connection, after its last byte was written (RFC 9112 9.6). First the client reads the rest of the
 * response, then it has a moment to close its side. Both times are limited. A client that reads nothing is
 * aborted, so that it cannot mistake a partial response for a complete one.
 */
export class LingeringClose {
  readonly #socket: Writable
  readonly #limits: IngressLimits
  readonly #watch: ProgressWatch
  /** Monotonic; set when the socket has flushed all data. */
  #deadline: number | undefined

  constructor(socket: Writable, limits: IngressLimits) {
    this.#socket = socket
    this.#limits = limits
    this.#watch = new ProgressWatch(limits)
  }

  /** Returns the next step for the connection; `now` is monotonic. */
  sweep(now: number): 'wait' | 'close' | 'abort' {
    const { writableFinished, writableLength } = this.#socket
    if (!writableFinished) {
      const progress = { movedBytes: -writableLength, awaitedBodyBytes: undefined }
      return this.#watch.check(progress, now) ? 'abort' : 'wait'
    }
    this.#deadline ??= now + this.#limits.lingerMs
    return now > this.#deadline ? 'close' : 'wait'
  }
}

/** Smaller pieces are merged while the client does not read them. */
const SMALL_BYTES = 1_024

/** Output to a client through its socket. */
export class ClientOutput {
  readonly #socket: ClientSocket
  readonly #coalescer: WriteCoalescer
  readonly #onHeld: () => void
  /** Small pieces that wait for the socket, at most the window of a stream. */
  readonly #backlog = new GrowingBuffer()
  #writtenBytes = 0
  #lastTick = 0

  /** `onHeld`: the number of held bytes may have changed. */
  constructor(socket: ClientSocket, coalescer: WriteCoalescer, onHeld: () => void) {
    this.#socket = socket
    this.#coalescer = coalescer
    this.#onHeld = onHeld
  }

  /** Bytes written here that the socket has not passed to the system. */
  get heldBytes(): number {
    return this.#socket.writableLength + this.#backlog.length
  }

  /** Written bytes that are no longer held here. */
  get takenBytes(): number {
    return this.#writtenBytes - this.heldBytes
  }

  /** Accepts all bytes; false: wait for the socket to drain. */
  write(chunk: Buffer): boolean {
    this.#writtenBytes += chunk.length
    // Each waiting write costs an object. A device that sends single bytes would cost megabytes.
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

  /** Passes the merged pieces to the socket. */
  flush(): void {
    if (this.#backlog.length > 0) this.#put(this.#backlog.take())
  }

  /** Half-closes the connection after earlier writes. */
  end(): void {
    this.flush()
    this.#socket.end()
  }

  /** Called by the coalescer at the end of the tick. */
  uncork(): void {
    this.#socket.uncork()
    this.#onHeld()
  }

  #put(chunk: Buffer): boolean {
    // Node reads a TLS socket at an empty write, over the lent bytes of a read that is not over.
    if (chunk.length === 0) return !this.#socket.writableNeedDrain
    const tick = this.#coalescer.tick()
    if (tick === this.#lastTick && this.#socket.writableCorked === 0) {
      this.#socket.cork()
      this.#coalescer.corked(this)
    }
    this.#lastTick = tick
    return this.#socket.write(chunk)
  }
}
