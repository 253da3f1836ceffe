import type { Clock } from '../base/clock.ts'

export interface TokenBucketOptions {
  readonly capacity: number
  readonly refillPerS: number
  readonly clock: Clock
}

/** Allows `capacity` at once and `refillPerS` in the long run. */
export class TokenBucket {
  readonly #capacity: number
  readonly #refillPerS: number
  readonly #clock: Clock
  #level: number
  #updatedAt: number

  constructor({ capacity, refillPerS, clock }: TokenBucketOptions) {
    this.#capacity = capacity
    this.#refillPerS = refillPerS
    this.#clock = clock
    this.#level = capacity
    this.#updatedAt = clock.monotonic()
  }

  /** Takes one and answers 0, or takes none and answers the seconds until there is one. */
  take(): number {
    const now = this.#clock.monotonic()
    const refilled = ((now - this.#updatedAt) / 1_000) * this.#refillPerS
    this.#level = Math.min(this.#capacity, this.#level + refilled)
    this.#updatedAt = now
    if (this.#level < 1) return (1 - this.#level) / this.#refillPerS
    this.#level -= 1
    return 0
  }
}
