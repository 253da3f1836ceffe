/** Memory of many buckets, seen as 32-bit words and as doubles. */
export interface BucketMemory {
  readonly words: Int32Array
  readonly doubles: Float64Array
}

/** Most times that a bucket keeps. */
const MAX_TIMES = 60
/** Ages of counting times stay below half of the range of a signed 32-bit difference. */
const MAX_UNITS = 2 ** 30

/** Words of a bucket: the oldest group, the number of groups, the admissions of the newest group. */
const OLDEST = 0
const GROUPS = 1
const IN_NEWEST = 2
/** Word that the window does not use; free for the owner of the buckets. */
export const SPARE_WORD = 3
/** The last admission as a double, in the place of two words. */
const LATEST = 4
const TIMES = 6

/**
 * Keeps the admissions of a bucket. All buckets of a limiter share typed arrays. The words of a bucket start
 * at `at`, which is even, and are zero at first.
 *
 * Up to 60 admissions, each time is kept, and the window is exact. Above that, admissions form groups of
 * `capacity / 60`, and a group counts until its last admission leaves the window. Only the oldest group can
 * be partly outside. So less than a sixtieth of the capacity is held back too long at any moment. Never more
 * than `capacity` is admitted in any window of `windowMs` that is closed at one end.
 */
export class SlidingWindow {
  /** Words that a bucket takes; even, so that there are doubles at the start of each. */
  readonly words: number
  readonly #capacity: number
  readonly #windowMs: number
  readonly #groupSize: number
  readonly #maxGroups: number
  /** Times are 32-bit integers of a fraction of a millisecond: a power of two, to be exact. */
  readonly #unitsPerMs: number
  readonly #windowUnits: number
  /** Results of the last read of a bucket. */
  #oldest = 0
  #groups = 0
  #inNewest = 0

  constructor(capacity: number, windowMs: number) {
    this.#capacity = capacity
    this.#windowMs = windowMs
    this.#groupSize = Math.ceil(capacity / MAX_TIMES)
    this.#maxGroups = Math.ceil(capacity / this.#groupSize)
    this.#unitsPerMs = 2 ** Math.floor(Math.log2(MAX_UNITS / windowMs))
    this.#windowUnits = windowMs * this.#unitsPerMs
    this.words = TIMES + this.#maxGroups + (this.#maxGroups & 1)
  }

  /** Admits a request and answers 0, or refuses it and answers the whole ms until a slot is certain. */
  admit(memory: BucketMemory, at: number, now: number): number {
    const waitMs = this.waitMs(memory, at, now)
    if (waitMs > 0) return waitMs
    const { words, doubles } = memory
    let groups = this.#groups
    let inNewest = this.#inNewest
    if (inNewest === this.#groupSize) {
      groups += 1
      inNewest = 0
    }
    const newest = (this.#oldest + groups - 1) % this.#maxGroups
    words[at + OLDEST] = this.#oldest
    words[at + GROUPS] = groups
    words[at + IN_NEWEST] = inNewest + 1
    doubles[(at + LATEST) >>> 1] = now
    words[at + TIMES + newest] = Math.ceil(now * this.#unitsPerMs)
    return 0
  }

  /**
   * Result that `admit()` would return. The bucket stays unchanged; the state that still counts is kept for
   * `admit()`.
   */
  waitMs({ words, doubles }: BucketMemory, at: number, now: number): number {
    let oldest = words[at + OLDEST] as number
    let groups = words[at + GROUPS] as number
    const nowUnits = Math.floor(now * this.#unitsPerMs) | 0
    if (now - (doubles[(at + LATEST) >>> 1] as number) >= this.#windowMs) groups = 0
    // Times are rounded up and the present is rounded down: an early end would over-admit.
    while (groups > 0 && this.#ageOf(words, at, oldest, nowUnits) >= this.#windowUnits) {
      oldest = this.#next(oldest)
      groups -= 1
    }
    const inNewest = groups === 0 ? this.#groupSize : (words[at + IN_NEWEST] as number)
    this.#oldest = oldest
    this.#groups = groups
    this.#inNewest = inNewest
    if ((groups - 1) * this.#groupSize + inNewest < this.#capacity) return 0
    const age = this.#ageOf(words, at, oldest, nowUnits)
    // A whole number: a fraction would be an object for each refusal.
    return Math.ceil((this.#windowUnits - age) / this.#unitsPerMs) | 0
  }

  /** Whether no admission counts any longer. */
  isIdle({ doubles }: BucketMemory, at: number, now: number): boolean {
    return now - (doubles[(at + LATEST) >>> 1] as number) >= this.#windowMs
  }

  /** When the groups were admitted, the oldest first; each time is that of a group's last. */
  times({ words, doubles }: BucketMemory, at: number): number[] {
    const latest = doubles[(at + LATEST) >>> 1] as number
    const latestUnits = Math.ceil(latest * this.#unitsPerMs)
    const oldest = words[at + OLDEST] as number
    return Array.from({ length: words[at + GROUPS] as number }, (_, index) => {
      const age = this.#ageOf(words, at, (oldest + index) % this.#maxGroups, latestUnits | 0)
      return Math.min(latest, (latestUnits - age) / this.#unitsPerMs)
    })
  }

  /** Groups that a bucket has at most, and admissions of each. */
  get shape(): { readonly groups: number; readonly each: number } {
    return { groups: this.#maxGroups, each: this.#groupSize }
  }

  /** How many groups count at `now`, and how many were admitted in the newest of them. */
  groups(memory: BucketMemory, at: number, now: number): number {
    // A bucket that was never used looks busy to a clock that is younger than a window.
    return this.isIdle(memory, at, now) ? 0 : (memory.words[at + GROUPS] as number)
  }

  inNewest({ words }: BucketMemory, at: number): number {
    return words[at + IN_NEWEST] as number
  }

  /** Writes how long ago the groups ended, in whole milliseconds rounded down, the oldest first. */
  ages({ words, doubles }: BucketMemory, at: number, now: number, to: Int32Array, from: number) {
    const latest = doubles[(at + LATEST) >>> 1] as number
    const latestUnits = Math.ceil(latest * this.#unitsPerMs)
    const groups = words[at + GROUPS] as number
    let group = words[at + OLDEST] as number
    for (let index = 0; index < groups; index += 1) {
      const units = latestUnits - this.#ageOf(words, at, group, latestUnits | 0)
      to[from + index] = Math.floor(Math.max(now - latest, now - units / this.#unitsPerMs))
      group = this.#next(group)
    }
  }

  /** Fills a new bucket with groups that ended at these times, oldest first. */
  fill(
    { words, doubles }: BucketMemory,
    at: number,
    times: readonly number[],
    inNewest: number,
  ): void {
    words[at + GROUPS] = times.length
    words[at + IN_NEWEST] = inNewest
    doubles[(at + LATEST) >>> 1] = times[times.length - 1] as number
    for (let group = 0; group < times.length; group += 1) {
      words[at + TIMES + group] = Math.ceil((times[group] as number) * this.#unitsPerMs)
    }
  }

  #ageOf(words: Int32Array, at: number, group: number, nowUnits: number): number {
    return (nowUnits - (words[at + TIMES + group] as number)) | 0
  }

  #next(group: number): number {
    return group + 1 === this.#maxGroups ? 0 : group + 1
  }
}
