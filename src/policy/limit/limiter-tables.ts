import { BoundedCache } from '../../base/bounded-cache.ts'
import type { Clock } from '../../base/clock.ts'
import type { Logger } from '../../base/logger.ts'
import { countedAddress, IPV6_PREFIX } from '../../base/net/network.ts'
import { type CountedLimiter, DEFAULT_MAX_BUCKETS, type LimiterMemory } from './rate-limiter.ts'

export interface LimiterTablesOptions {
  /** Keys that each rate limit counts apart. */
  readonly maxKeys?: number | undefined
  /** Bits of an IPv6 address that count as one visitor. */
  readonly ipv6Prefix?: number | undefined
  readonly clock: Clock
  readonly log: Logger
}

/** A decision about a key without its own bucket. */
export interface SharedDecision {
  /** Id of the endpoint, and the name of the limit in its policy. */
  readonly endpoint: string
  readonly limit: string
  readonly client: string
  readonly isRefused: boolean
}

const WARN_EVERY_MS = 60_000
/** Bytes of a table for each key, when all keys are busy. */
const BYTES_A_KEY = 280
/** All tables together take as much as so many that are full. */
const FULL_TABLES = 4
/** Cached networks of IPv6 addresses: parsing takes 2 us. */
const KNOWN_ADDRESSES = 1_000
const RECOUNT_MS = 1_000

/**
 * Memory of all rate limits of a gateway, and counters of decisions without enough memory. The counters only
 * grow, until the gateway ends.
 */
export class LimiterTables implements LimiterMemory {
  readonly maxKeys: number
  readonly #counted: BoundedCache<string>
  readonly #clock: Clock
  readonly #log: Logger
  #shared = 0
  #sharedRefused = 0
  #warnAt = Number.NEGATIVE_INFINITY
  /** Limiters of removed policies are collected with them. */
  readonly #limiters = new Set<WeakRef<CountedLimiter>>()
  #bytes = 0
  #recountAt = Number.NEGATIVE_INFINITY

  constructor(options: LimiterTablesOptions) {
    const { maxKeys = DEFAULT_MAX_BUCKETS, ipv6Prefix = IPV6_PREFIX, clock, log } = options
    this.maxKeys = maxKeys
    this.#counted = new BoundedCache((ip) => countedAddress(ip, ipv6Prefix), KNOWN_ADDRESSES)
    this.#clock = clock
    this.#log = log
  }

  /** The address under which a client counts. */
  countedIp(clientIp: string): string {
    return clientIp.includes(':') ? this.#counted.get(clientIp) : clientIp
  }

  add(limiter: CountedLimiter): void {
    this.#limiters.add(new WeakRef(limiter))
  }

  /**
   * Whether a limit may take no more memory: all limits together use the available memory, and this limit
   * more than its share. So a policy with hundreds of limits leaves memory to others.
   */
  isFullFor(limiter: CountedLimiter): boolean {
    const now = this.#clock.monotonic()
    if (now >= this.#recountAt) this.#recount(now)
    const maxBytes = FULL_TABLES * BYTES_A_KEY * this.maxKeys
    return this.#bytes >= maxBytes && limiter.bytes * this.#limiters.size > maxBytes
  }

  #recount(now: number): void {
    this.#recountAt = now + RECOUNT_MS
    this.#bytes = 0
    for (const reference of this.#limiters) {
      const limiter = reference.deref()
      if (limiter) this.#bytes += limiter.bytes
      else this.#limiters.delete(reference)
    }
  }

  /** Decisions about keys without a bucket of their own, of all limits. */
  get shared(): number {
    return this.#shared
  }

  /** Shared decisions that refused. */
  get sharedRefused(): number {
    return this.#sharedRefused
  }

  /** Counts a decision. The log gets at most one line a minute. */
  count({ isRefused, ...where }: SharedDecision): void {
    this.#shared += 1
    if (isRefused) this.#sharedRefused += 1
    const now = this.#clock.monotonic()
    if (now < this.#warnAt) return
    this.#warnAt = now + WARN_EVERY_MS
    this.#log.warn(
      { ...where, maxKeys: this.maxKeys, shared: this.#shared, sharedRefused: this.#sharedRefused },
      'rate limit has too many keys, so some keys share a count: raise GATEWAY_RATE_LIMIT_KEYS',
    )
  }
}
