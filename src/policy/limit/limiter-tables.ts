import type { Clock } from '../../base/clock.ts'
import type { Logger } from '../../base/logger.ts'
import { DEFAULT_MAX_BUCKETS } from './rate-limiter.ts'

export interface LimiterTablesOptions {
  /** Keys that each rate limit counts apart. */
  readonly maxKeys?: number | undefined
  readonly clock: Clock
  readonly log: Logger
}

/** A decision about a key without a bucket of its own. */
export interface SharedDecision {
  /** Id of the endpoint, and the name of the limit in its policy. */
  readonly endpoint: string
  readonly limit: string
  readonly client: string
  readonly isRefused: boolean
}

const WARN_EVERY_MS = 60_000

/**
 * What all rate limits of a gateway have in common: the size of their tables, and what it came to
 * where that was not enough. The counts only grow, for as long as the gateway runs.
 */
export class LimiterTables {
  readonly maxKeys: number
  readonly #clock: Clock
  readonly #log: Logger
  #shared = 0
  #sharedRefused = 0
  #warnAt = Number.NEGATIVE_INFINITY

  constructor({ maxKeys = DEFAULT_MAX_BUCKETS, clock, log }: LimiterTablesOptions) {
    this.maxKeys = maxKeys
    this.#clock = clock
    this.#log = log
  }

  /** Decisions about keys without a bucket of their own, of all limits. */
  get shared(): number {
    return this.#shared
  }

  /** Those of them that refused. */
  get sharedRefused(): number {
    return this.#sharedRefused
  }

  /** Counts it; the log hears of it once a minute at most, whoever floods. */
  count({ isRefused, ...where }: SharedDecision): void {
    this.#shared += 1
    if (isRefused) this.#sharedRefused += 1
    const now = this.#clock.monotonic()
    if (now < this.#warnAt) return
    this.#warnAt = now + WARN_EVERY_MS
    this.#log.warn(
      { ...where, maxKeys: this.maxKeys, shared: this.#shared, sharedRefused: this.#sharedRefused },
      'rate limit has too many keys to count each apart: GATEWAY_RATE_LIMIT_KEYS makes room',
    )
  }
}
