import { ownerOf, setOwner, type Tier } from './bucket-table.ts'
import type { BucketMemory, SlidingWindow } from './sliding-window.ts'

/**
 * The buckets of a limiter for another process, as rows of 32-bit numbers. A row has the two halves of the
 * key's hash, its owner, the number of groups, the admissions of the newest group, and the age of each group
 * in milliseconds, oldest first. Ages are rounded down: a group then counts a moment too long, never too
 * short.
 */
const HEAD = 5
const FIRST_WORDS = 1_024

/**
 * Writes rows of buckets that still count, as long as they fit. A full table takes milliseconds, so rows
 * allocate no objects.
 */
export class DumpWriter {
  readonly #maxWords: number
  #words: Int32Array
  #length = 0
  #isFull = false

  constructor(maxBytes: number) {
    this.#maxWords = Math.max(0, Math.floor(maxBytes / 4))
    this.#words = new Int32Array(FIRST_WORDS)
  }

  tier(tier: Tier, now: number): void {
    const { table, window } = tier
    for (let row = 0; row < table.size && !this.#isFull; row += 1) {
      const memory = table.page(row)
      const at = table.offset(row)
      const { words } = memory
      const low = words[at - 2] as number
      const high = words[at - 1] as number
      this.bucket(window, memory, at, now, low, high, ownerOf(tier, row))
    }
  }

  /** The last three are the numbers in front of the counts. */
  bucket(
    window: SlidingWindow,
    memory: BucketMemory,
    at: number,
    now: number,
    low: number,
    high = 0,
    owner = 0,
  ): void {
    const groups = window.groups(memory, at, now)
    if (groups === 0 || !this.#reserve(HEAD + groups)) return
    const words = this.#words
    const from = this.#length
    words[from] = low
    words[from + 1] = high
    words[from + 2] = owner
    words[from + 3] = groups
    words[from + 4] = window.inNewest(memory, at)
    window.ages(memory, at, now, words, from + HEAD)
    this.#length = from + HEAD + groups
  }

  /** Undefined when they take more room than there is. */
  get rows(): Int32Array | undefined {
    return this.#isFull ? undefined : this.#words.subarray(0, this.#length)
  }

  #reserve(words: number): boolean {
    const wanted = this.#length + words
    this.#isFull ||= wanted > this.#maxWords
    if (wanted > this.#words.length) {
      const larger = new Int32Array(wanted * 2)
      larger.set(this.#words)
      this.#words = larger
    }
    return !this.#isFull
  }
}

/** One bucket as it was. */
export interface DumpedBucket {
  readonly low: number
  readonly high: number
  readonly owner: number
  /** When its groups ended; the oldest first. */
  readonly times: readonly number[]
  readonly inNewest: number
}

/** Reads buckets from rows of age `elapsedMs`, as of `now`. Throws if the rows are invalid. */
export function* readDump(
  rows: Int32Array,
  now: number,
  elapsedMs: number,
): Generator<DumpedBucket> {
  const word = (at: number) => rows[at] as number
  for (let at = 0; at < rows.length; ) {
    const groups = rows[at + 3] ?? 0
    const next = at + HEAD + groups
    if (groups < 1 || next > rows.length) throw new Error('a row of counts is incomplete')
    const times: number[] = []
    for (let age = at + HEAD; age < next; age += 1) times.push(now - word(age) - elapsedMs)
    const [low, high, owner, inNewest] = [word(at), word(at + 1), word(at + 2), word(at + 4)]
    yield { low, high, owner, times, inNewest }
    at = next
  }
}

/** Adds a bucket to a tier that does not have it, unless the bucket is expired. */
export function putBucket(tier: Tier, bucket: DumpedBucket, now: number, windowMs: number): void {
  const { table, window } = tier
  const { low, high, owner, times, inNewest } = bucket
  if (!isCounted(bucket, window, now, windowMs) || table.find(low, high) !== -1) return
  const row = table.insert(low, high)
  setOwner(tier, row, owner)
  window.fill(table.page(row), table.offset(row), times, inNewest)
}

/** Whether a bucket still counts. Throws if it does not fit a window of this shape. */
export function isCounted(
  { times, inNewest }: DumpedBucket,
  window: SlidingWindow,
  now: number,
  windowMs: number,
): boolean {
  const { groups, each } = window.shape
  let latest = Number.NEGATIVE_INFINITY
  let areInOrder = true
  for (const time of times) {
    areInOrder &&= time >= latest && time <= now
    latest = time
  }
  if (times.length > groups || inNewest < 1 || inNewest > each || !areInOrder) {
    throw new Error('counts outside the range of the limit')
  }
  return now - latest < windowMs
}
