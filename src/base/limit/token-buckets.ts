import type { Clock } from '../clock.ts'
import type { Limiter } from './limiter.ts'

export interface TokenBucketsOptions {
  /** Events of a key that fit at once, after it was quiet. */
  readonly capacity: number
  /** Events of a key that fit in the long run. */
  readonly refillPerS: number
  /** Keys remembered at once: the one that was used longest ago is forgotten first. */
  readonly maxKeys: number
  readonly clock: Clock
}

interface Bucket {
  level: number
  updatedAt: number
}

/** A token bucket for each key. */
export class TokenBuckets implements Limiter {
  readonly #options: TokenBucketsOptions
  /** In the order of their last use. */
  readonly #buckets = new Map<string, Bucket>()

  constructor(options: TokenBucketsOptions) {
    this.#options = options
  }

  take(key: string): number {
    const { refillPerS } = this.#options
    const bucket = this.#refilled(key)
    if (bucket.level < 1) return Math.ceil(((1 - bucket.level) / refillPerS) * 1_000)
    bucket.level -= 1
    return 0
  }

  /** Takes more for what was let in: what comes next waits the longer. */
  charge(key: string, cost: number): void {
    this.#refilled(key).level -= cost
  }

  #refilled(key: string): Bucket {
    const { capacity, refillPerS, maxKeys, clock } = this.#options
    const now = clock.monotonic()
    const bucket = this.#buckets.get(key) ?? { level: capacity, updatedAt: now }
    const refill = ((now - bucket.updatedAt) / 1_000) * refillPerS
    bucket.level = Math.min(capacity, bucket.level + refill)
    bucket.updatedAt = now
    this.#buckets.delete(key)
    this.#buckets.set(key, bucket)
    const [oldest] = this.#buckets.keys()
    if (this.#buckets.size > maxKeys && oldest !== undefined) this.#buckets.delete(oldest)
    return bucket
  }
}
