import type { Clock } from './clock.ts'
import { peerNetwork } from './net/network.ts'

/** Limits the rate of events, separately for each key. */
export interface Limiter {
  /**
   * Counts an event of the key and returns 0, or refuses it without counting. A refusal returns the
   * milliseconds until the next event fits, if no other comes first.
   */
  tryCount(key: string): number
}

interface SlidingLogOptions {
  /** Maximum number of events in any period of `windowMs`. */
  readonly capacity: number
  readonly windowMs: number
  readonly clock: Clock
}

/** Stores the time of each event. Exact for any window, at the cost of one number per event. */
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

  tryCount(key: string): number {
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

  /** Removes keys without events for a whole window. */
  #sweep(now: number): void {
    if (now - this.#sweptAt < this.#windowMs) return
    this.#sweptAt = now
    for (const [key, times] of this.#timesOf) {
      if ((times.at(-1) ?? 0) <= now - this.#windowMs) this.#timesOf.delete(key)
    }
  }
}

interface TokenBucketsOptions {
  /** Largest burst of a key. */
  readonly capacity: number
  /** Sustained rate of a key, in events per second. */
  readonly refillPerS: number
  /** Maximum number of keys. The least recently used key is removed first. */
  readonly maxKeys: number
  readonly clock: Clock
}

interface Bucket {
  level: number
  updatedAt: number
}

/** One token bucket per key. */
export class TokenBuckets implements Limiter {
  readonly #options: TokenBucketsOptions
  /** In order of last use. */
  readonly #buckets = new Map<string, Bucket>()

  constructor(options: TokenBucketsOptions) {
    this.#options = options
  }

  tryCount(key: string): number {
    const { refillPerS } = this.#options
    const bucket = this.#refilled(key)
    if (bucket.level < 1) return Math.ceil(((1 - bucket.level) / refillPerS) * 1_000)
    bucket.level -= 1
    return 0
  }

  /** Adds to the cost of an admitted event: the next one waits longer. */
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

const PER_CLIENT = { capacity: 10, refillPerS: 0.2, maxKeys: 1_000 }
const ALL_CLIENTS = { capacity: 100, refillPerS: 5, maxKeys: 1 }

/**
 * Slows down attempts to guess tokens, per client and for all clients together. A client is an IPv4 address
 * or the /64 of an IPv6 address. The longest wait is 5 s, multiplied by the number of gateways.
 *
 * Only failures count. So the holder of a valid token cannot be locked out, even from behind the same
 * address.
 */
export class FailureLimiter implements Limiter {
  readonly #clients: TokenBuckets
  readonly #all: TokenBuckets
  readonly #gateways: () => number

  /** `gateways`: number of gateways that each count only their own failures. Each allows its share. */
  constructor(clock: Clock, gateways: () => number = () => 1) {
    this.#clients = new TokenBuckets({ ...PER_CLIENT, clock })
    this.#all = new TokenBuckets({ ...ALL_CLIENTS, clock })
    this.#gateways = gateways
  }

  tryCount(client: string): number {
    // A client that has to wait must not use up the shared limit.
    return this.#takeFrom(this.#clients, peerNetwork(client)) || this.#takeFrom(this.#all, '')
  }

  #takeFrom(buckets: TokenBuckets, key: string): number {
    const waitMs = buckets.tryCount(key)
    if (waitMs === 0) buckets.charge(key, this.#gateways() - 1)
    return waitMs
  }
}
