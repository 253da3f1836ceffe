import type { Writable } from 'node:stream'
import {
  type FrameSink,
  GO_AWAY_BYTES,
  HEADER_BYTES,
  MAX_GO_AWAY_MESSAGE_BYTES,
  putData,
  putGoAway,
  putReset,
  putWindowIncrement,
  WORD_BYTES,
} from './frame-codec.ts'

/** Four of the largest frames. */
const SLAB_BYTES = 65_536
/** Slabs that nobody uses and that are kept: 8 MB. */
const MOST_SPARE = 128

/**
 * Memory in which frames are collected. Sessions that have one pool together take a slab each while they
 * write, and idle ones have none; the one that was used last is used next.
 */
export class SlabPool {
  readonly #spare: Buffer[] = []

  /** Slabs that are kept for whoever writes next. */
  get spare(): number {
    return this.#spare.length
  }

  take(): Buffer {
    return this.#spare.pop() ?? Buffer.allocUnsafeSlow(SLAB_BYTES)
  }

  /** Nobody may read or write it any more. */
  give(slab: Buffer): void {
    if (this.#spare.length < MOST_SPARE) this.#spare.push(slab)
  }
}

/** Slabs given to the transport until it counts as full, and until there is room again. */
const FULL_SLABS = 4
const ROOMY_SLABS = 2

interface FrameWriterOptions {
  readonly transport: Writable
  readonly slabs: SlabPool
  /** Bytes with the transport that end in `onOverflow`. */
  readonly backlogBytes: number
  /** There is room again after `hasRoom` was false. */
  onRoom(): void
  /** After `acknowledge()`, when nothing waits to go out: put a small frame now. */
  onIdle(): void
  /** More waits than any peer that reads would cause. */
  onOverflow(): void
}

/**
 * Collects frames in a slab and gives it to the transport once per turn of the event loop, or when it
 * is full: one write, one TLS record run and one system call for many frames. A slab is used again
 * only after the transport is done with it, so `body` may change as soon as `data()` returns.
 */
export class FrameWriter implements FrameSink {
  readonly #options: FrameWriterOptions
  readonly #turn = () => this.#onTurn()
  #slab: Buffer | undefined
  #used = 0
  #slabsInFlight = 0
  #bytesInFlight = 0
  #full = false
  #scheduled = false
  #closed = false

  constructor(options: FrameWriterOptions) {
    this.#options = options
  }

  /** False while the transport is full. Control frames may be put even then, DATA should wait. */
  get hasRoom(): boolean {
    return !this.#full
  }

  data(streamId: number, body: Buffer, flags: number): void {
    const slab = this.#slabFor(HEADER_BYTES + body.length)
    this.#used = putData(slab, this.#used, streamId, body, flags)
  }

  reset(streamId: number, code: number): void {
    const slab = this.#slabFor(HEADER_BYTES + WORD_BYTES)
    this.#used = putReset(slab, this.#used, streamId, code)
  }

  windowIncrement(streamId: number, bytes: number): void {
    const slab = this.#slabFor(HEADER_BYTES + WORD_BYTES)
    this.#used = putWindowIncrement(slab, this.#used, streamId, bytes)
  }

  goAway(lastStreamId: number, code: number, message: string): void {
    const slab = this.#slabFor(HEADER_BYTES + GO_AWAY_BYTES + MAX_GO_AWAY_MESSAGE_BYTES)
    this.#used = putGoAway(slab, this.#used, lastStreamId, code, message)
  }

  /** Makes sure that something goes out this turn, so that the kernel's ACK rides on it. */
  acknowledge(): void {
    this.#schedule()
  }

  /** Writes what is collected and nothing after that. */
  close(): void {
    this.#flush()
    this.#closed = true
  }

  #slabFor(bytes: number): Buffer {
    if (this.#used + bytes > SLAB_BYTES) this.#flush()
    this.#schedule()
    this.#slab ??= this.#options.slabs.take()
    return this.#slab
  }

  #schedule(): void {
    if (this.#scheduled) return
    this.#scheduled = true
    setImmediate(this.#turn)
  }

  #onTurn(): void {
    // A slab with a few bytes is still a slab: with the transport full, let it fill up first.
    if (!this.#closed && !this.#full) {
      if (this.#used === 0) this.#options.onIdle()
      this.#flush()
    }
    this.#scheduled = false
    // A transport in memory hands on at once: what that has caused here came too late for this turn.
    if (this.#used > 0 && !this.#full) this.#schedule()
  }

  #flush(): void {
    const slab = this.#slab
    const bytes = this.#used
    if (slab === undefined || bytes === 0) return
    this.#slab = undefined
    this.#used = 0
    if (this.#closed) return
    this.#slabsInFlight += 1
    this.#bytesInFlight += bytes
    if (this.#slabsInFlight >= FULL_SLABS) this.#full = true
    this.#options.transport.write(slab.subarray(0, bytes), (error) => {
      // A transport that broke may have it still.
      if (!error) this.#options.slabs.give(slab)
      this.#onWritten(bytes)
    })
    if (this.#bytesInFlight > this.#options.backlogBytes) this.#options.onOverflow()
  }

  #onWritten(bytes: number): void {
    this.#slabsInFlight -= 1
    this.#bytesInFlight -= bytes
    if (!this.#full || this.#slabsInFlight > ROOMY_SLABS) return
    this.#full = false
    if (this.#used > 0) this.#schedule()
    this.#options.onRoom()
  }
}
