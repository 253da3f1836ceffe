import { BucketTable } from './bucket-table.ts'
import { KeyHash } from './key-hash.ts'
import { createWindow, type SlidingWindow } from './sliding-window.ts'

export interface RateLimiterOptions {
  /** Requests that may be admitted in any window of `windowMs`. */
  readonly capacity: number
  readonly windowMs: number
  readonly maxBuckets?: number
  readonly hash?: KeyHash
}

/** About 27 MB when every bucket is in use. */
const MAX_BUCKETS = 100_000
const MAX_SWEEP_STEPS = 256
/** The bucket that all further keys share while every other is in use. */
const OVERFLOW_HASH = 0

/**
 * Sliding-window limits by key. Never admits more than `capacity` requests of a key in any window.
 * Buckets whose window has emptied are swept a few with each call; no timer is needed.
 */
export class RateLimiter {
  readonly #window: SlidingWindow
  readonly #windowMs: number
  readonly #table: BucketTable
  #hash: KeyHash | undefined
  readonly #maxBuckets: number
  #latest = 0
  #sweepAt = 0
  #sweepDue = 0

  constructor(options: RateLimiterOptions) {
    this.#window = createWindow(options.capacity, options.windowMs)
    this.#windowMs = options.windowMs
    this.#table = new BucketTable(this.#window.words)
    this.#hash = options.hash
    this.#maxBuckets = options.maxBuckets ?? MAX_BUCKETS
  }

  /** Buckets in memory, idle ones that have not been swept yet included. */
  get buckets(): number {
    return this.#table.size
  }

  /** Bytes held for all buckets. */
  get bytes(): number {
    return this.#table.bytes
  }

  /**
   * Admits a request and answers 0, or refuses it and answers the milliseconds until a slot is
   * certain. `time` is monotonic, in milliseconds; an earlier time than the last counts as the last.
   */
  admit(key: string, time: number): number {
    const now = Math.max(time, this.#latest)
    this.#sweep(now)
    this.#latest = now
    // The key is drawn when it is needed: most limiters are only ever checked.
    this.#hash ??= new KeyHash()
    const hash = this.#hash
    hash.hash(key)
    let row = this.#table.find(hash.low, hash.high)
    if (row === -1) row = this.#open(hash.low, hash.high, now)
    return this.#window.admit(this.#table.page(row), this.#table.offset(row), now)
  }

  /**
   * While the table is full, new keys share one bucket. A key that gets a bucket of its own later
   * starts with a copy of the shared one, so that what it used there still counts.
   */
  #open(low: number, high: number, now: number): number {
    const table = this.#table
    const shared = table.find(OVERFLOW_HASH, OVERFLOW_HASH)
    if (table.size >= this.#maxBuckets) {
      return shared === -1 ? table.insert(OVERFLOW_HASH, OVERFLOW_HASH) : shared
    }
    const row = table.insert(low, high)
    if (shared !== -1 && !this.#isIdle(shared, now)) {
      const { words } = table.page(shared)
      const at = table.offset(shared)
      table.page(row).words.set(words.subarray(at, at + this.#window.words), table.offset(row))
    }
    return row
  }

  /** Walks over the whole table about once per window, and clears it after a window of silence. */
  #sweep(now: number): void {
    const table = this.#table
    const silence = now - this.#latest
    if (silence >= this.#windowMs) {
      table.clear()
      return
    }
    this.#sweepDue = Math.min(
      this.#sweepDue + (table.size * silence) / this.#windowMs,
      MAX_SWEEP_STEPS,
    )
    for (; this.#sweepDue >= 1 && table.size > 0; this.#sweepDue -= 1) {
      if (this.#sweepAt >= table.size) this.#sweepAt = 0
      if (this.#isIdle(this.#sweepAt, now)) table.remove(this.#sweepAt)
      else this.#sweepAt += 1
    }
  }

  #isIdle(row: number, now: number): boolean {
    return this.#window.isIdle(this.#table.page(row), this.#table.offset(row), now)
  }
}
