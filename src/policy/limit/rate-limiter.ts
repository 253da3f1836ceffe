import * as z from 'zod'
import type { Clock } from '../../base/clock.ts'
import { networkOf } from '../../base/net/network.ts'
import { admitTo, createTier, ownerOf, setOwner, type Tier } from './bucket-table.ts'
import { KeyHash } from './key-hash.ts'
import { DumpWriter, putBucket, readDump } from './limiter-dump.ts'
import { SharedBuckets } from './shared-buckets.ts'

const ROW_BITS = 12
const ROW_CELLS = 1 << ROW_BITS
const ROW_MASK = ROW_CELLS - 1

/**
 * Number of buckets of each owner, in 32 kB for any number of owners. It has two rows of counters, and an
 * owner has a counter in each (a count-min sketch). The number is never too low. It is too high if others
 * share both counters: one in 16 million owners for each owner.
 */
export class OwnerCounts {
  readonly #cells = new Uint32Array(2 * ROW_CELLS)

  get bytes(): number {
    return this.#cells.byteLength
  }

  /** `owner` is 32 bits of a hash; `by` is 1 or -1. */
  change(owner: number, by: number): void {
    for (const cell of [firstCell(owner), secondCell(owner)]) {
      this.#cells[cell] = (this.#cells[cell] as number) + by
    }
  }

  of(owner: number): number {
    const first = this.#cells[firstCell(owner)] as number
    const second = this.#cells[secondCell(owner)] as number
    return Math.min(first, second)
  }
}

const firstCell = (owner: number) => owner & ROW_MASK
const secondCell = (owner: number) => ROW_CELLS + ((owner >>> ROW_BITS) & ROW_MASK)

/** A rate limit, as far as its memory goes. */
export interface CountedLimiter {
  readonly bytes: number
}

/** The memory of several limiters together. */
export interface LimiterMemory {
  /** Counts that of a limiter with that of all others. */
  add(limiter: CountedLimiter): void
  /** True when a limiter may not take more. */
  isFullFor(limiter: CountedLimiter): boolean
}

export interface RateLimiterOptions {
  /** Requests that may be admitted in any window of `windowMs`. */
  readonly capacity: number
  readonly windowMs: number
  readonly clock: Clock
  /** Keys that have a bucket of their own: 280 bytes each at most, when all are busy. */
  readonly maxBuckets?: number
  readonly hash?: KeyHash
  /** Bounds the memory of all limiters. Default: `maxBuckets` bounds this limiter alone. */
  readonly tables?: LimiterMemory
}

/** At most 28 MB. */
export const DEFAULT_MAX_BUCKETS = 100_000
/** With the hash of its key, a bucket for so many admissions is one cache line of 64 bytes. */
const SMALL_CAPACITY = 8
const SWEEPS_PER_WINDOW = 4
/** Shortest time between sweeps: preparing a sweep costs as much as a lookup. */
const SWEEP_EVERY_MS = 8
/** Most buckets that one sweep visits. */
const MAX_SWEEP_STEPS = 1_024
/** An address may have a bucket while so many are free for each that it has. */
const FREE_FOR_EACH = 4
/** Owners are forgotten below a tenth of all buckets: at a fifth, an owner could have too many. */
const FORGET_OWNERS_BELOW = 1 / 10

/** Size of a limiter, and its decisions without enough buckets. */
export interface LimiterFigures {
  /** Includes idle buckets that were not swept yet. */
  readonly buckets: number
  readonly maxBuckets: number
  readonly bytes: number
  /** Decisions about keys without their own bucket, and the refusals among them. */
  readonly shared: number
  readonly sharedRefused: number
}

/** Counts of a limiter for another process. The key is secret: with it, a client can aim at buckets. */
export interface LimiterDump {
  readonly key: Buffer
  /** Rows of buckets by tier: small, large, shared. */
  readonly rows: readonly [small: Int32Array, large: Int32Array, shared: Int32Array]
}

/**
 * Sliding-window limits by key. Never admits more than `capacity` requests of a key in any window. A key
 * starts with a small bucket, and gets a large bucket when that is full: most clients send only a few
 * requests. Each call sweeps a few expired buckets, so there is no timer.
 *
 * An address gets no more buckets than a quarter of the free ones. So an address with ever new keys ends with
 * a fifth of all buckets, and ten such addresses leave at least a tenth. A first key gets a bucket while any
 * is free. Further keys are counted in `SharedBuckets`, which never admits too much, but may refuse too
 * early. With `maxBuckets` in use, n flooding addresses keep out n of 512 newcomers on average, besides the
 * competition among newcomers: all of them share 1,024 buckets of `capacity`.
 */
export class RateLimiter {
  readonly capacity: number
  readonly windowMs: number
  readonly #clock: Clock
  readonly #maxBuckets: number
  readonly #tables: RateLimiterOptions['tables']
  readonly #small: Tier
  readonly #large: Tier | undefined
  readonly #shared: SharedBuckets
  /** Buckets by owner; counted only while an owner could have too many. */
  #owners: OwnerCounts | undefined
  #hash: KeyHash | undefined
  #latest = 0
  #sweptAt = 0

  constructor({
    capacity,
    windowMs,
    clock,
    maxBuckets = DEFAULT_MAX_BUCKETS,
    hash,
    tables,
  }: RateLimiterOptions) {
    this.#small = createTier(Math.min(capacity, SMALL_CAPACITY), windowMs)
    this.#large = capacity > SMALL_CAPACITY ? createTier(capacity, windowMs) : undefined
    this.#shared = new SharedBuckets((this.#large ?? this.#small).window)
    this.capacity = capacity
    this.windowMs = windowMs
    this.#clock = clock
    this.#maxBuckets = maxBuckets
    this.#hash = hash
    this.#tables = tables
    tables?.add(this)
  }

  get buckets(): number {
    return this.#small.table.size + (this.#large?.table.size ?? 0)
  }

  /** Decisions so far about keys that had no bucket of their own. */
  get shared(): number {
    return this.#shared.decisions
  }

  get bytes(): number {
    const tables = this.#small.table.bytes + (this.#large?.table.bytes ?? 0)
    return tables + this.#shared.bytes + (this.#owners?.bytes ?? 0)
  }

  get figures(): LimiterFigures {
    const { decisions, refusals } = this.#shared
    const { bytes } = this
    const buckets = { buckets: this.buckets, maxBuckets: this.#maxBuckets }
    return { ...buckets, bytes, shared: decisions, sharedRefused: refusals }
  }

  /**
   * Counts a request of the key and returns 0. Or refuses it without counting, and returns the milliseconds
   * until a request fits, if no other comes first. `address` is the client's, IPv4 or IPv6. A time before the
   * last call counts as the time of that call.
   */
  tryCount(key: string, address: string): number {
    const now = Math.max(this.#clock.monotonic(), this.#latest)
    const silence = now - this.#latest
    this.#latest = now
    if (silence >= this.windowMs) this.#clear()
    else if (now - this.#sweptAt >= SWEEP_EVERY_MS) this.#sweepAll(now)
    // The key is drawn when it is needed: most limiters are only ever checked.
    this.#hash ??= new KeyHash()
    this.#hash.hash(key)
    const { low, high } = this.#hash
    const large = this.#large
    const largeRow = large ? large.table.find(low, high) : -1
    if (large && largeRow !== -1) return admitTo(large, largeRow, now)
    const small = this.#small
    const row = small.table.find(low, high)
    if (row === -1) {
      this.#hash.hash(networkOf(address))
      return this.#open(low, high, this.#hash, now)
    }
    const waitMs = admitTo(small, row, now)
    if (waitMs === 0 || !large) return waitMs
    // The bucket is full, the capacity is not: the key moves into a large one.
    const grown = large.table.insert(low, high)
    setOwner(large, grown, ownerOf(small, row))
    for (const admittedAt of small.window.times(small.table.page(row), small.table.offset(row))) {
      admitTo(large, grown, admittedAt)
    }
    small.table.remove(row)
    return admitTo(large, grown, now)
  }

  /** Time of the last call by the limiter's clock. It changes with every count. */
  get askedAt(): number {
    return this.#latest
  }

  /** The current counts; undefined if they exceed `maxBytes` or are empty. */
  dump(maxBytes: number): LimiterDump | undefined {
    if (!this.#hash) return undefined
    const now = Math.max(this.#clock.monotonic(), this.#latest)
    const written: Int32Array[] = []
    let left = maxBytes
    for (const part of [this.#small, this.#large, this.#shared]) {
      const writer = new DumpWriter(left)
      if (part instanceof SharedBuckets) part.dump(writer, now)
      else if (part) writer.tier(part, now)
      if (!writer.rows) return undefined
      left -= writer.rows.byteLength
      written.push(writer.rows)
    }
    const [small, large, shared] = written as [Int32Array, Int32Array, Int32Array]
    return { key: this.#hash.key, rows: [small, large, shared] }
  }

  /**
   * Replaces its counts by those of a limiter with the same capacity and window, from `elapsedMs` ago. Throws
   * if they do not fit.
   */
  restore({ key, rows: [small, large, shared] }: LimiterDump, elapsedMs: number): void {
    const now = this.#clock.monotonic()
    const { windowMs } = this
    this.#clear()
    this.#shared.forget()
    this.#hash = new KeyHash(key)
    for (const bucket of readDump(small, now, elapsedMs)) {
      putBucket(this.#small, bucket, now, windowMs)
    }
    for (const bucket of readDump(large, now, elapsedMs)) {
      putBucket(this.#large ?? this.#small, bucket, now, windowMs)
    }
    for (const bucket of readDump(shared, now, elapsedMs)) {
      this.#shared.restore(bucket, now, windowMs)
    }
    this.#latest = now
  }

  /**
   * Decides about a key without a bucket. If a key gets a bucket after sharing, it starts with a copy of the
   * shared bucket, so that its earlier requests still count.
   */
  #open(low: number, high: number, address: KeyHash, now: number): number {
    if (!this.#mayOwnMore(address.low)) return this.#shared.admit(high, address.high, now)
    const goesOn = this.#shared.counts(high, now)
    const tier = goesOn && this.#large ? this.#large : this.#small
    const row = tier.table.insert(low, high)
    if (goesOn) this.#shared.copyTo(high, tier.table.page(row), tier.table.offset(row))
    setOwner(tier, row, address.low)
    this.#owners?.change(address.low, 1)
    return admitTo(tier, row, now)
  }

  #mayOwnMore(owner: number): boolean {
    if (this.#tables?.isFullFor(this)) return false
    const free = this.#maxBuckets - this.buckets
    // An owner has at most all of them.
    if (this.buckets * FREE_FOR_EACH < free) return true
    this.#owners ??= this.#countOwners()
    return this.#owners.of(owner) * FREE_FOR_EACH < free
  }

  #countOwners(): OwnerCounts {
    const owners = new OwnerCounts()
    for (const tier of this.#large ? [this.#small, this.#large] : [this.#small]) {
      for (let row = 0; row < tier.table.size; row += 1) owners.change(ownerOf(tier, row), 1)
    }
    return owners
  }

  /** After a silent window, all counts are zero. */
  #clear(): void {
    this.#small.table.clear()
    this.#large?.table.clear()
    this.#shared.release(this.#latest, this.windowMs)
    this.#owners = undefined
  }

  #sweepAll(now: number): void {
    const elapsed = now - this.#sweptAt
    this.#sweptAt = now
    this.#sweep(this.#small, elapsed)
    if (this.#large) this.#sweep(this.#large, elapsed)
    this.#shared.release(now, this.windowMs)
    if (this.buckets < this.#maxBuckets * FORGET_OWNERS_BELOW) this.#owners = undefined
  }

  /** Walks over a table a few times per window. */
  #sweep(tier: Tier, elapsed: number): void {
    const { table } = tier
    const due = (SWEEPS_PER_WINDOW * table.size * elapsed) / this.windowMs
    tier.sweepDue = Math.min(tier.sweepDue + due, MAX_SWEEP_STEPS)
    for (; tier.sweepDue >= 1 && table.size > 0; tier.sweepDue -= 1) {
      if (tier.sweepAt >= table.size) tier.sweepAt = 0
      const row = tier.sweepAt
      if (tier.window.isIdle(table.page(row), table.offset(row), this.#latest)) {
        this.#owners?.change(ownerOf(tier, row), -1)
        table.remove(row)
      } else tier.sweepAt += 1
    }
  }
}

const WORD_BYTES = 4
const KEY_BYTES = 8

const Base64 = z.base64().transform((text) => Buffer.from(text, 'base64'))
const Rows = Base64.refine(({ length }) => length % WORD_BYTES === 0).transform(toWords)

/** Counts of a limiter as fields of a JSON object in base64. Parses a `LimiterDump`. */
export const DUMP_FIELDS = {
  key: Base64.refine(({ length }) => length === KEY_BYTES),
  rows: z.tuple([Rows, Rows, Rows]),
}

interface DumpText {
  readonly key: string
  readonly rows: readonly string[]
}

export function dumpText({ key, rows }: LimiterDump): DumpText {
  return { key: key.toString('base64'), rows: rows.map(toBase64) }
}

function toBase64({ buffer, byteOffset, byteLength }: Int32Array): string {
  return Buffer.from(buffer, byteOffset, byteLength).toString('base64')
}

function toWords(bytes: Buffer): Int32Array {
  const words = new Int32Array(bytes.length / WORD_BYTES)
  bytes.copy(Buffer.from(words.buffer))
  return words
}
