import type { Clock } from './clock.ts'
import { peerNetwork } from './net/network.ts'

/** Limits how often something happens, for each key on its own. */
export interface Limiter {
  /**
   * Counts one event of the key and answers 0; or refuses it, which does not count, and answers the
   * milliseconds after which one fits if no other comes first.
   */
  take(key: string): number
}

interface SlidingLogOptions {
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

interface TokenBucketsOptions {
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

const PER_CLIENT = { capacity: 10, refillPerS: 0.2, maxKeys: 1_000 }
const ALL_CLIENTS = { capacity: 100, refillPerS: 5, maxKeys: 1 }

/**
 * Slows down who tries tokens, each client and all of them together; a client is an IPv4 address or
 * the /64 of an IPv6 one. Nobody has to wait for more than 5 s for each gateway. It counts failures
 * only, so that nobody can lock out the holder of a valid token, not even from behind the same address.
 */
export class FailureLimiter implements Limiter {
  readonly #clients: TokenBuckets
  readonly #all: TokenBuckets
  readonly #gateways: () => number

  /** `gateways` count the same failures, each those that come to it: each lets its part through. */
  constructor(clock: Clock, gateways: () => number = () => 1) {
    this.#clients = new TokenBuckets({ ...PER_CLIENT, clock })
    this.#all = new TokenBuckets({ ...ALL_CLIENTS, clock })
    this.#gateways = gateways
  }

  take(client: string): number {
    // Who has to wait already must not use up what the others share.
    return this.#takeFrom(this.#clients, peerNetwork(client)) || this.#takeFrom(this.#all, '')
  }

  #takeFrom(buckets: TokenBuckets, key: string): number {
    const waitMs = buckets.take(key)
    if (waitMs === 0) buckets.charge(key, this.#gateways() - 1)
    return waitMs
  }
}
