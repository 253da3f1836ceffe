/** Bounds of a retry delay, in milliseconds. */
export interface BackoffOptions {
  readonly baseMs: number
  readonly capMs: number
  /** How much of a delay chance may take off it, from 0 to 1; all of it unless said otherwise. */
  readonly jitter?: number
  /** Delays that somebody has handed out before; none unless given. */
  readonly attempts?: number
  /** A number in [0, 1). */
  readonly random?: () => number
}

/**
 * Exponential backoff with jitter: the n-th delay is uniform in ((1 - jitter) * d, d], where d is
 * min(cap, base * 2^n). Full jitter unless said otherwise, because a fleet that lost the same
 * service must not return in one wave.
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

  /** Delays handed out since the last reset. */
  get attempts(): number {
    return this.#attempts
  }

  /** The next delay in milliseconds, at least 1. */
  next(): number {
    // 2^30 is past every cap; a larger exponent would only lose precision.
    const ceiling = Math.min(this.#capMs, this.#baseMs * 2 ** Math.min(this.#attempts, 30))
    this.#attempts += 1
    return Math.max(1, Math.ceil((1 - this.#jitter * this.#random()) * ceiling))
  }

  /** Starts from the shortest delay again; call it only after the thing stayed up for a while. */
  reset(): void {
    this.#attempts = 0
  }
}
