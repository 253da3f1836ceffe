import type { Clock } from '../clock.ts'
import type { Limiter } from './limiter.ts'

export interface SlidingLogOptions {
  /** How many events fit into any stretch of `windowMs`. */
  readonly capacity: number
  readonly windowMs: number
  readonly clock: Clock
}

/** Keeps the time of each event: exact in any window, at the cost of a number for each event. */
export class SlidingLog implements Limiter {
  readonly #capacity: number
  readonly #windowMs: number
  readonly #clock: Clock
  readonly #timesOf = new Map<string, number[]>()
  #sweptAt = 0

  constructor({ capacity, windowMs, clock }: SlidingLogOptions) {
    this.#capacity = capacity
    this.#windowMs = windowMs
    this.#clock = clock
  }

  take(key: string): number {
    const now = this.#clock.monotonic()
    this.#sweep(now)
    const times = this.#timesOf.get(key) ?? []
    while ((times[0] ?? now) <= now - this.#windowMs) times.shift()
    const oldest = times[0]
    if (oldest !== undefined && times.length >= this.#capacity) {
      return Math.ceil(oldest + this.#windowMs - now)
    }
    times.push(now)
    this.#timesOf.set(key, times)
    return 0
  }

  /** Forgets keys that were quiet for a whole window. */
  #sweep(now: number): void {
    if (now - this.#sweptAt < this.#windowMs) return
    this.#sweptAt = now
    for (const [key, times] of this.#timesOf) {
      if ((times.at(-1) ?? 0) <= now - this.#windowMs) this.#timesOf.delete(key)
    }
  }
}
