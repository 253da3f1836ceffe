import type { Clock } from '../base/clock.ts'
import type { Limiter } from '../base/limit/limiter.ts'
import { TokenBuckets } from '../base/limit/token-buckets.ts'

const PER_CLIENT = { capacity: 10, refillPerS: 0.2, maxKeys: 1_000 }
const ALL_CLIENTS = { capacity: 100, refillPerS: 5, maxKeys: 1 }

/**
 * Slows down who tries tokens, each client and all of them together. It counts failures only, so
 * that nobody can lock out the holder of a valid token, not even from behind the same address.
 */
export class FailureLimiter implements Limiter {
  readonly #clients: TokenBuckets
  readonly #all: TokenBuckets

  constructor(clock: Clock) {
    this.#clients = new TokenBuckets({ ...PER_CLIENT, clock })
    this.#all = new TokenBuckets({ ...ALL_CLIENTS, clock })
  }

  take(client: string): number {
    // Who has to wait already must not use up what the others share.
    return this.#clients.take(client) || this.#all.take('')
  }
}
