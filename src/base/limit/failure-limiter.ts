import type { Clock } from '../clock.ts'
import type { Limiter } from './limiter.ts'
import { peerNetwork } from './peer-network.ts'
import { TokenBuckets } from './token-buckets.ts'

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
