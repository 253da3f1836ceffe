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

/** Room for four frames of the largest size. */
const SLAB_BYTES = 65_536
/** Unused slabs kept for reuse: 8 MB. */
const MAX_SPARE_SLABS = 128

/**
 * Pool of buffers in which frames are collected. Sessions that share a pool take a slab only while they
 * write. The slab used last is reused first.
 */
export class SlabPool {
  readonly #spare: Buffer[] = []

  /** Number of unused slabs. */
  get spare(): number {
    return this.#spare.length
  }

  take(): Buffer {
    return this.#spare.pop() ?? Buffer.allocUnsafeSlow(SLAB_BYTES)
  }

  /** Returns a slab to the pool. The caller must not read or write it after this. */
  give(slab: Buffer): void {
    if (this.#spare.length < MAX_SPARE_SLABS) this.#spare.push(slab)
  }
}

/** The transport counts as full at this many slabs. */
const FULL_SLABS = 4
const ROOMY_SLABS = 2

interface FrameWriterOptions {
  readonly transport: Writable
  readonly slabs: SlabPool
  /** Bytes in the transport at which `onOverflow` is called. */
  readonly backlogBytes: number
  /** Called when there is room again after `hasRoom` was false. */
  onRoom(): void
  /** Called after `acknowledge()` if nothing else is to be sent. The callee writes a small frame. */
  onIdle(): void
  /** Called when the backlog is larger than any peer that reads would cause. */
  onOverflow(): void
}

/**
 * Collects frames in a slab. Passes the slab to the transport once per event loop turn, or when it is full.
 * Many frames thus cost one write, one run of TLS records and one system call.
 *
 * A slab is reused only after the transport has written it. `data()` copies `body`, which may change
 * afterwards.
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

  /** False while the transport is full. Control frames are accepted even then, DATA should wait. */
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

  /** Ensures that something is sent in this turn, so that the kernel's ACK is sent with it. */
  acknowledge(): void {
    this.#schedule()
  }

  /** Writes the collected frames. Later frames are dropped. */
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
    // If the transport is full, collects more first: a nearly empty slab still counts as a slab.
    if (!this.#closed && !this.#full) {
      if (this.#used === 0) this.#options.onIdle()
      this.#flush()
    }
    this.#scheduled = false
    // An in-memory transport may deliver and answer during `#flush()`. The next turn sends those frames.
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
      // After an error, the transport may still hold the slab.
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
