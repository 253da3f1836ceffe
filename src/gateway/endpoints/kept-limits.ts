import { hash } from 'node:crypto'
import { readFileSync } from 'node:fs'
import { uptime } from 'node:os'
import * as z from 'zod'
import type { Clock } from '../../base/clock.ts'
import type { Logger } from '../../base/logger.ts'
import type { LimiterTables } from '../../policy/limit/limiter-tables.ts'
import { DUMP_FIELDS, dumpText, RateLimiter } from '../../policy/limit/rate-limiter.ts'
import type { EndpointPolicies, PlacedStates, PolicyPlace } from './endpoint-policies.ts'
import type { EndpointRegistry } from './endpoint-registry.ts'
import { KeptFile } from './kept-file.ts'

/** A point in time that another process can measure from. In milliseconds. */
export interface Moment {
  /** Milliseconds since the epoch. */
  readonly at: number
  /** Boot that the point in time belongs to; null if the system does not tell. */
  readonly boot: string | null
  /** Milliseconds since that boot. */
  readonly upMs: number
}

/** Resolution of the system's uptime, in milliseconds. */
const UPTIME_STEP_MS = 10

export function momentNow(clock: Pick<Clock, 'now'>): Moment {
  return { at: clock.now(), boot: bootId(), upMs: Math.floor(uptime() * 1_000) }
}

/**
 * Returns the minimum time since a moment. Within one boot it uses the uptime, which does not depend on clock
 * changes. Across a reboot only the clock is left; a clock that went back counts as 0.
 */
export function elapsedMs(then: Moment, now: Moment): number {
  const isSameBoot = then.boot !== null && then.boot === now.boot && now.upMs >= then.upMs
  const elapsed = isSameBoot ? now.upMs - then.upMs - UPTIME_STEP_MS : now.at - then.at
  return Math.max(0, elapsed)
}

function bootId(): string | null {
  try {
    return readFileSync('/proc/sys/kernel/random/boot_id', 'utf8').trim()
  } catch {
    return null
  }
}

/** Counters with shorter windows are not saved: their windows end before the counters could matter. */
export const KEPT_WINDOW_MS = 600_000
/**
 * Interval for saving. Requests admitted since the last save are not in the file if the process is killed.
 */
export const KEEP_EVERY_MS = 10_000
/** Maximum size of the limits in the file, without the envelope. */
const MAX_BYTES = 4 * 1024 * 1024

/** Ratio of base64: 3 bytes become 4 characters. */
const BINARY_PARTS = 3
const TEXT_PARTS = 4

const Limit = z.strictObject({
  ownerId: z.string().nullable(),
  protocol: z.enum(['http', 'https', 'tcp', 'tls']),
  host: z.string(),
  poolMember: z.string().optional(),
  /** Identifies the limit in the policy: phase, type, configuration, and its number among equal limits. */
  state: z.string(),
  capacity: z.int().positive(),
  windowMs: z.int().min(KEPT_WINDOW_MS),
  ...DUMP_FIELDS,
})
const Limits = z.strictObject({
  at: z.number(),
  boot: z.string().nullable(),
  upMs: z.number(),
  limits: z.array(Limit),
})

export interface KeptLimitsOptions {
  readonly path: string
  readonly registry: EndpointRegistry
  readonly policies: EndpointPolicies
  /** State that the limits of the next policies share. */
  readonly tables: LimiterTables
  readonly maxBytes?: number
  readonly moment?: () => Moment
  readonly clock: Clock
  readonly log: Logger
}

/**
 * Counters of rate limits with long windows. In the next process, an endpoint with the same account, host and
 * limit continues with them. Requests cause no writes. If the process is killed, requests admitted since the
 * last save are not counted.
 */
export class KeptLimits {
  readonly #options: KeptLimitsOptions
  readonly #file: KeptFile
  readonly #moment: () => Moment
  #isTooMuch = false

  constructor(options: KeptLimitsOptions) {
    this.#options = options
    this.#moment = options.moment ?? (() => momentNow(options.clock))
    this.#file = new KeptFile({
      ...options,
      what: 'rate limits',
      everyMs: KEEP_EVERY_MS,
      revision: () => this.#revision(),
      content: () => this.#content(),
    })
  }

  /** Call this before there are endpoints. */
  start(): void {
    const kept = this.#file.read((text) => this.#parse(text))
    for (const placed of kept ?? []) this.#options.policies.remember(placed, placed)
    this.#file.start()
  }

  /** Leaves the file to another process, which does not see later counts of this process. */
  release(): Promise<void> {
    return this.#file.release()
  }

  reclaim(): void {
    this.#file.reclaim()
  }

  stop(): Promise<void> {
    return this.#file.stop()
  }

  #parse(text: string): PlacedStates[] {
    const { clock, tables } = this.#options
    const [sum, body = ''] = text.split('\n')
    if (sum !== hash('sha256', body)) throw new Error('the checksum is wrong')
    const { limits, ...then } = Limits.parse(JSON.parse(body))
    const elapsed = elapsedMs(then, this.#moment())
    const places = new Map<string, PlacedStates & { states: Map<string, RateLimiter> }>()
    for (const { state, capacity, windowMs, key, rows, ...at } of limits) {
      const maxBuckets = tables.maxKeys
      const limiter = new RateLimiter({ capacity, windowMs, clock, maxBuckets, tables })
      limiter.restore({ key, rows }, elapsed)
      const name = JSON.stringify(at)
      const place = places.get(name) ?? { ...at, states: new Map() }
      places.set(name, place)
      place.states.set(state, limiter)
    }
    return [...places.values()]
  }

  /** Changes whenever a limit counts. */
  #revision(): string {
    let count = 0
    let sum = 0
    for (const { limiter } of this.#limits()) {
      count += 1
      sum += limiter.askedAt
    }
    return `${count} ${sum}`
  }

  #content(): string {
    const { maxBytes = MAX_BYTES } = this.#options
    const { at, boot, upMs } = this.#moment()
    let left = maxBytes
    let tooMuch = 0
    // Small limits first, so that a limit with too many keys takes no room from others.
    const limits = [...this.#limits()].sort((a, b) => a.limiter.buckets - b.limiter.buckets)
    const kept = limits.flatMap(({ limiter, ...place }) => {
      const { capacity, windowMs } = limiter
      const dump = limiter.dump((left * BINARY_PARTS) / TEXT_PARTS)
      if (dump?.rows.every(({ length }) => length === 0)) return []
      const entry = dump && {
        ...place,
        capacity,
        windowMs,
        ...dumpText(dump),
      }
      const length = entry ? JSON.stringify(entry).length : 0
      if (!entry || length > left) {
        if (limiter.buckets > 0) tooMuch += 1
        return []
      }
      left -= length
      return [entry]
    })
    this.#tell(tooMuch)
    const body = JSON.stringify({ at, boot, upMs, limits: kept })
    return `${hash('sha256', body)}\n${body}\n`
  }

  #tell(tooMuch: number): void {
    const { log } = this.#options
    const facts = { limits: tooMuch }
    if (tooMuch > 0 && !this.#isTooMuch) {
      log.warn(
        facts,
        'rate limits have too many keys to save: counts restart at zero after a restart',
      )
    }
    this.#isTooMuch = tooMuch > 0
  }

  /** Limits with long windows: first of online endpoints, then of former endpoints. */
  *#limits(): Generator<PolicyPlace & { state: string; limiter: RateLimiter }> {
    const { registry, policies } = this.#options
    const seen = new Set<string>()
    const online = [...registry.all()].map(({ ownerId, protocol, host, poolMember, policy }) => ({
      ...{ ownerId, protocol, host, poolMember },
      states: policy.states,
    }))
    for (const { states, ...place } of [...online, ...policies.remembered()]) {
      for (const [state, limiter] of states) {
        if (!(limiter instanceof RateLimiter) || limiter.windowMs < KEPT_WINDOW_MS) continue
        const name = JSON.stringify([place, state])
        if (seen.has(name)) continue
        seen.add(name)
        yield { ...place, state, limiter }
      }
    }
  }
}
