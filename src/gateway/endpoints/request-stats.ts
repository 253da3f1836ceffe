/** Classes of a status. `none`: the visitor left before a response began, or the gateway closed the connection. */
export const STATUS_CLASSES = ['none', '1xx', '2xx', '3xx', '4xx', '5xx'] as const

/** Upper bounds of durations, in seconds. Longer requests count in a last bucket. */
export const DURATION_BOUNDS = [0.01, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30] as const
const BOUNDS_MS = DURATION_BOUNDS.map((seconds) => seconds * 1_000)

/** Places of the counters: a place for each class, then for each bucket, then for the sum of milliseconds. */
const FIRST_BUCKET = STATUS_CLASSES.length
const SUM_AT = FIRST_BUCKET + BOUNDS_MS.length + 1

/**
 * Counters of ended requests: by class of their status, and by duration. Upgraded connections and requests
 * without a response have no duration. All counters are in one array, and a request allocates nothing.
 */
export class RequestStats {
  readonly #counts = new Float64Array(SUM_AT + 1)

  /** `status` is 0 if no response began. */
  count(status: number, ms: number): void {
    const classAt = status >= 100 && status < 600 ? (status / 100) | 0 : 0
    this.#add(classAt, 1)
    if (classAt < 2) return
    let bucket = 0
    while (bucket < BOUNDS_MS.length && ms > (BOUNDS_MS[bucket] ?? 0)) bucket += 1
    this.#add(FIRST_BUCKET + bucket, 1)
    this.#add(SUM_AT, ms)
  }

  add(other: RequestStats): void {
    for (const [at, value] of other.#counts.entries()) this.#add(at, value)
  }

  /** Requests by class, in the order of `STATUS_CLASSES`. */
  get classes(): readonly number[] {
    return [...this.#counts.subarray(0, FIRST_BUCKET)]
  }

  /** Requests by duration: one bucket for each of `DURATION_BOUNDS`, then longer requests. */
  get buckets(): readonly number[] {
    return [...this.#counts.subarray(FIRST_BUCKET, SUM_AT)]
  }

  get sumSeconds(): number {
    return (this.#counts[SUM_AT] ?? 0) / 1_000
  }

  #add(at: number, value: number): void {
    this.#counts[at] = (this.#counts[at] ?? 0) + value
  }
}
