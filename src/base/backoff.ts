/** Bounds of a retry delay, in milliseconds. */
export interface BackoffOptions {
  readonly baseMs: number
  readonly capMs: number
  /** Largest part of a delay that is removed at random, from 0 to 1. Default: 1. */
  readonly jitter?: number
  /** Number of delays already used. Default: 0. */
  readonly attempts?: number
  /** Returns a number in [0, 1). */
  readonly random?: () => number
}

/**
 * Exponential backoff with jitter: the n-th delay is uniform in ((1 - jitter) * d, d], with d = min(cap, base
 * * 2^n). Full jitter is the default, so that a fleet that lost the same service does not return all at once.
 */
export class Backoff {
  readonly #baseMs: number
  readonly #capMs: number
  readonly #jitter: number
  readonly #random: () => number
  #attempts: number

  constructor({ baseMs, capMs, jitter = 1, attempts = 0, random = Math.random }: BackoffOptions) {
    this.#baseMs = baseMs
    this.#capMs = capMs
    this.#jitter = jitter
    this.#random = random
    this.#attempts = attempts
  }

  /** Number of delays since the last reset. */
  get attempts(): number {
    return this.#attempts
  }

  /** Returns the next delay in milliseconds, at least 1. */
  next(): number {
    // 2^30 exceeds every cap. A larger exponent would only lose precision.
    const ceiling = Math.min(this.#capMs, this.#baseMs * 2 ** Math.min(this.#attempts, 30))
    this.#attempts += 1
    return Math.max(1, Math.ceil((1 - this.#jitter * this.#random()) * ceiling))
  }

  /** Starts from the shortest delay again. Call it only after a stable period. */
  reset(): void {
    this.#attempts = 0
  }
}
