import type { Clock } from '../base/clock.ts'
import { TokenBucket } from './token-bucket.ts'

const PER_CLIENT = { capacity: 10, refillPerS: 0.2 }
const ALL_CLIENTS = { capacity: 100, refillPerS: 5 }
/** Clients remembered at once; the one that failed longest ago is forgotten first. */
const MAX_CLIENTS = 1_000

/**
 * Slows down who tries tokens, each client and all of them together. It counts failures only, so
 * that nobody can lock out the holder of a valid token, not even from behind the same address.
 */
export class FailureLimiter {
  readonly #clock: Clock
  readonly #all: TokenBucket
  readonly #clients = new Map<string, TokenBucket>()

  constructor(clock: Clock) {
    this.#clock = clock
    this.#all = new TokenBucket({ ...ALL_CLIENTS, clock })
  }

  /** Counts a failure; the seconds that the client has to wait, 0 while it may go on. */
  fail(client: string): number {
    const bucket =
      this.#clients.get(client) ?? new TokenBucket({ ...PER_CLIENT, clock: this.#clock })
    this.#clients.delete(client)
    this.#clients.set(client, bucket)
    const [oldest] = this.#clients.keys()
    if (this.#clients.size > MAX_CLIENTS && oldest !== undefined) this.#clients.delete(oldest)
    // Who has to wait already must not use up what the others share.
    return bucket.take() || this.#all.take()
  }
}
