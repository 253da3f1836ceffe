import { type DumpedBucket, type DumpWriter, isCounted } from './limiter-dump.ts'
import type { BucketMemory, SlidingWindow } from './sliding-window.ts'

/** Buckets of each kind; a power of two. */
const BUCKETS = 1_024
const MASK = BUCKETS - 1

/**
 * Counts keys without their own bucket. Each key has one of 1,024 buckets, and each address one of 1,024
 * others. An admission needs room in both, and counts in both.
 *
 * The bucket of the key keeps the promise of the limit: it contains every admission of the key. The bucket of
 * the address protects others: an address is admitted at most `capacity` times here. So a flooding address
 * fills at most one bucket of each kind in a window, and one in 512 other clients needs one of these. A
 * client of a partly filled bucket finds a part of its window used.
 */
export class SharedBuckets {
  readonly #window: SlidingWindow
  /** Buckets of addresses first, then those of keys. Allocated while any of them counts. */
  #memory: BucketMemory | undefined
  #latest = Number.NEGATIVE_INFINITY
  /** How often `admit()` was asked, and how often it refused. */
  decisions = 0
  refusals = 0

  constructor(window: SlidingWindow) {
    this.#window = window
  }

  get bytes(): number {
    return this.#memory?.words.byteLength ?? 0
  }

  /** Both are 32 bits of a hash. Answers 0, or the milliseconds until both have room. */
  admit(key: number, address: number, now: number): number {
    this.decisions += 1
    this.#memory ??= this.#createMemory()
    const ofAddress = (address & MASK) * this.#window.words
    const ofKey = this.#placeOf(key)
    const waitMs = Math.max(
      this.#window.waitMs(this.#memory, ofAddress, now),
      this.#window.waitMs(this.#memory, ofKey, now),
    )
    if (waitMs > 0) {
      this.refusals += 1
      return waitMs
    }
    this.#window.admit(this.#memory, ofAddress, now)
    this.#window.admit(this.#memory, ofKey, now)
    this.#latest = now
    return 0
  }

  /** Whether an admission of the key, or of a key in the same bucket, still counts. */
  counts(key: number, now: number): boolean {
    return this.#memory !== undefined && !this.#window.isIdle(this.#memory, this.#placeOf(key), now)
  }

  /** Gives a bucket of the same window the state of the key's. Only while that `counts()`. */
  copyTo(key: number, { words }: BucketMemory, at: number): void {
    const { words: shared } = this.#memory as BucketMemory
    const from = this.#placeOf(key)
    words.set(shared.subarray(from, from + this.#window.words), at)
  }

  /** Frees the memory when all counts are zero. */
  release(now: number, windowMs: number): void {
    if (now - this.#latest >= windowMs) this.#memory = undefined
  }

  /** Sets all counts to zero. */
  forget(): void {
    this.#memory = undefined
  }

  /** Writes the counting buckets with their numbers. */
  dump(writer: DumpWriter, now: number): void {
    if (!this.#memory) return
    for (let bucket = 0; bucket < 2 * BUCKETS; bucket += 1) {
      writer.bucket(this.#window, this.#memory, bucket * this.#window.words, now, bucket)
    }
  }

  restore(bucket: DumpedBucket, now: number, windowMs: number): void {
    const { low, times, inNewest } = bucket
    if (low < 0 || low >= 2 * BUCKETS) throw new Error('unknown shared bucket')
    if (!isCounted(bucket, this.#window, now, windowMs)) return
    this.#memory ??= this.#createMemory()
    this.#window.fill(this.#memory, low * this.#window.words, times, inNewest)
    this.#latest = Math.max(this.#latest, times.at(-1) ?? 0)
  }

  #placeOf(key: number): number {
    return (BUCKETS + (key & MASK)) * this.#window.words
  }

  #createMemory(): BucketMemory {
    const memory = new ArrayBuffer(2 * BUCKETS * this.#window.words * 4)
    return { words: new Int32Array(memory), doubles: new Float64Array(memory) }
  }
}
