import type { Clock } from '../clock.ts'
import type { Limiter } from './limiter.ts'

export interface FixedWindowOptions {
  /** Events of a key that fit into one window. */
  readonly capacity: number
  readonly windowMs: number
  /** Keys that fit into one window: further ones are refused, so that memory is bounded. */
  readonly maxKeys: number
  readonly clock: Clock
}

/** Counts per key in windows that follow each other: cheap, and up to twice as much at their seam. */
export class FixedWindow implements Limiter {
  readonly #options: FixedWindowOptions
  readonly #counts = new Map<string, number>()
  #since = Number.NEGATIVE_INFINITY

  constructor(options: FixedWindowOptions) {
    this.#options = options
  }

  take(key: string): number {
    const { capacity, windowMs, maxKeys, clock } = this.#options
    const now = clock.monotonic()
    if (now - this.#since >= windowMs) {
      this.#since = now
      this.#counts.clear()
    }
    const count = this.#counts.get(key) ?? 0
    const isFull = count >= capacity || (count === 0 && this.#counts.size >= maxKeys)
    if (isFull) return Math.ceil(this.#since + windowMs - now)
    this.#counts.set(key, count + 1)
    return 0
  }
}
