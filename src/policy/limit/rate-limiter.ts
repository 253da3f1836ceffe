import type { Clock } from '../../base/clock.ts'
import type { Limiter } from '../../base/limit/limiter.ts'
import { BucketTable } from './bucket-table.ts'
import { KeyHash } from './key-hash.ts'
import { SlidingWindow } from './sliding-window.ts'

export interface RateLimiterOptions {
  /** Requests that may be admitted in any window of `windowMs`. */
  readonly capacity: number
  readonly windowMs: number
  readonly clock: Clock
  readonly maxBuckets?: number
  readonly hash?: KeyHash
}

/** At most 28 MB, when every bucket is in use and busy. */
const MAX_BUCKETS = 100_000
/** With the hash of its key, a bucket for so many admissions is one cache line of 64 bytes. */
const SMALL_CAPACITY = 8
const SWEEPS_PER_WINDOW = 4
/** Calls in between do not sweep: what a sweep has to work out costs as much as a lookup. */
const SWEEP_EVERY_MS = 8
/** Buckets that one sweep looks at, at most. */
const MAX_SWEEP_STEPS = 1_024
/** The bucket that all further keys share while every other is in use. */
const OVERFLOW_HASH = 0

/** Buckets of one size, and where the sweep stands among them. */
interface Tier {
  readonly window: SlidingWindow
  readonly table: BucketTable
  sweepAt: number
  sweepDue: number
}

/**
 * Sliding-window limits by key. Never admits more than `capacity` requests of a key in any window.
 * A key starts with a small bucket, and gets a large one when that does not suffice: most clients
 * send a few requests and go. Buckets whose window has emptied are swept a few with each call; no
 * timer is needed.
 */
export class RateLimiter implements Limiter {
  readonly #windowMs: number
  readonly #clock: Clock
  readonly #maxBuckets: number
  readonly #small: Tier
  readonly #large: Tier | undefined
  #hash: KeyHash | undefined
  #latest = 0
  #sweptAt = 0

  constructor({ capacity, windowMs, clock, maxBuckets = MAX_BUCKETS, hash }: RateLimiterOptions) {
    this.#small = createTier(Math.min(capacity, SMALL_CAPACITY), windowMs)
    this.#large = capacity > SMALL_CAPACITY ? createTier(capacity, windowMs) : undefined
    this.#windowMs = windowMs
    this.#clock = clock
    this.#maxBuckets = maxBuckets
    this.#hash = hash
  }

  /** Buckets in memory, idle ones that have not been swept yet included. */
  get buckets(): number {
    return this.#small.table.size + (this.#large?.table.size ?? 0)
  }

  /** Bytes held for all buckets. */
  get bytes(): number {
    return this.#small.table.bytes + (this.#large?.table.bytes ?? 0)
  }

  /** A time before that of the last call counts as that. */
  take(key: string): number {
    const now = Math.max(this.#clock.monotonic(), this.#latest)
    const silence = now - this.#latest
    this.#latest = now
    if (silence >= this.#windowMs) this.#clear()
    else if (now - this.#sweptAt >= SWEEP_EVERY_MS) this.#sweepAll(now)
    // The key is drawn when it is needed: most limiters are only ever checked.
    this.#hash ??= new KeyHash()
    this.#hash.hash(key)
    return this.#admitHash(this.#hash.low, this.#hash.high, now)
  }

  #admitHash(low: number, high: number, now: number): number {
    const large = this.#large
    const largeRow = large ? large.table.find(low, high) : -1
    if (large && largeRow !== -1) return admitTo(large, largeRow, now)
    const small = this.#small
    const row = small.table.find(low, high)
    if (row === -1) return this.#open(low, high, now)
    const waitMs = admitTo(small, row, now)
    if (waitMs === 0 || !large) return waitMs
    // The bucket is full, the capacity is not: the key moves into a large one.
    const grown = large.table.insert(low, high)
    for (const admittedAt of small.window.times(small.table.page(row), small.table.offset(row))) {
      admitTo(large, grown, admittedAt)
    }
    small.table.remove(row)
    return admitTo(large, grown, now)
  }

  /**
   * While the tables are full, new keys share one bucket. A key that gets a bucket of its own later
   * starts with a copy of the shared one, so that what it used there still counts.
   */
  #open(low: number, high: number, now: number): number {
    const isFull = this.buckets >= this.#maxBuckets
    if (isFull && (low !== OVERFLOW_HASH || high !== OVERFLOW_HASH)) {
      return this.#admitHash(OVERFLOW_HASH, OVERFLOW_HASH, now)
    }
    for (const tier of this.#large ? [this.#large, this.#small] : [this.#small]) {
      const shared = tier.table.find(OVERFLOW_HASH, OVERFLOW_HASH)
      if (shared !== -1 && !this.#isIdle(tier, shared)) {
        return admitTo(tier, copyBucket(tier, shared, tier.table.insert(low, high)), now)
      }
    }
    return admitTo(this.#small, this.#small.table.insert(low, high), now)
  }

  /** After a window of silence nothing counts any more. */
  #clear(): void {
    this.#small.table.clear()
    this.#large?.table.clear()
  }

  #sweepAll(now: number): void {
    const elapsed = now - this.#sweptAt
    this.#sweptAt = now
    this.#sweep(this.#small, elapsed)
    if (this.#large) this.#sweep(this.#large, elapsed)
  }

  /** Walks over a table a few times per window. */
  #sweep(tier: Tier, elapsed: number): void {
    const { table } = tier
    const due = (SWEEPS_PER_WINDOW * table.size * elapsed) / this.#windowMs
    tier.sweepDue = Math.min(tier.sweepDue + due, MAX_SWEEP_STEPS)
    for (; tier.sweepDue >= 1 && table.size > 0; tier.sweepDue -= 1) {
      if (tier.sweepAt >= table.size) tier.sweepAt = 0
      if (this.#isIdle(tier, tier.sweepAt)) table.remove(tier.sweepAt)
      else tier.sweepAt += 1
    }
  }

  #isIdle({ window, table }: Tier, row: number): boolean {
    return window.isIdle(table.page(row), table.offset(row), this.#latest)
  }
}

function createTier(capacity: number, windowMs: number): Tier {
  const window = new SlidingWindow(capacity, windowMs)
  return { window, table: new BucketTable(window.words), sweepAt: 0, sweepDue: 0 }
}

function admitTo({ window, table }: Tier, row: number, now: number): number {
  return window.admit(table.page(row), table.offset(row), now)
}

/** Gives one row the state of another and answers it. */
function copyBucket({ window, table }: Tier, from: number, to: number): number {
  const start = table.offset(from)
  const state = table.page(from).words.subarray(start, start + window.words)
  table.page(to).words.set(state, table.offset(to))
  return to
}
