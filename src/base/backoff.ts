/** Bounds of a retry delay, in milliseconds. */
export interface BackoffOptions {
  readonly baseMs: number
  readonly capMs: number
  /** A number in [0, 1). */
  readonly random?: () => number
}

/**
 * Full-jitter exponential backoff: the n-th delay is uniform in (0, min(cap, base * 2^n)].
 * Full jitter, because a fleet that lost the same service must not return in one wave.
 */
export class Backoff {
  readonly #baseMs: number
  readonly #capMs: number
  readonly #random: () => number
  #attempts = 0

  constructor({ baseMs, capMs, random = Math.random }: BackoffOptions) {
    this.#baseMs = baseMs
    this.#capMs = capMs
    this.#random = random
  }

  /** Delays handed out since the last reset. */
  get attempts(): number {
    return this.#attempts
  }

  /** The next delay in milliseconds, at least 1. */
  next(): number {
    // 2^30 is past every cap; a larger exponent would only lose precision.
    const ceiling = Math.min(this.#capMs, this.#baseMs * 2 ** Math.min(this.#attempts, 30))
    this.#attempts += 1
    return Math.max(1, Math.ceil((1 - this.#random()) * ceiling))
  }

  /** Starts from the shortest delay again; call it only after the thing stayed up for a while. */
  reset(): void {
    this.#attempts = 0
  }
}
