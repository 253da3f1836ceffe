import type { Clock } from '../../base/clock.ts'
import { AutoResetEvent } from '../../base/deferred.ts'
import { SlidingLog } from '../../base/limiter.ts'
import type { AgentEndpoint } from '../endpoints/endpoint.ts'
import { refusedTodayList } from '../endpoints/endpoint-policies.ts'
import {
  countsSince,
  judgeVisitors,
  type OutcomeCounts,
  type VisitorOutcome,
  type VisitorState,
} from '../endpoints/visitor-outcomes.ts'
import type { ServicePressure } from '../streams/service-connections.ts'

/** Interval of checks. Changes within it are reported as one. */
const POLL_MS = 2_000
/** A failure that the agent does not know yet is reported after this time. */
const SOON_MS = 200
/**
 * Persistent trouble is reported again after this time: the agent may have checked meanwhile and found
 * nothing.
 */
const AGAIN_MS = 30_000
/** Notices per session, kind and minute: on a metered link each costs 800 bytes and more. */
const PER_MINUTE = 10
/** Maximum size of a notice in bytes. Longer texts have not been tried with the SDK. */
const MAX_BYTES = 3_000
/** Maximum length of a warning about a policy. The management API has the whole text. */
const MAX_WARNING = 500

const TROUBLES: ReadonlySet<VisitorState> = new Set(['slow', 'busy', 'garbage', 'unreachable'])
const FAILURES: ReadonlySet<VisitorOutcome | undefined> = new Set([
  'garbage',
  'unreachable',
  'late',
])

export interface VisitorNoticesOptions {
  readonly clock: Clock
  /** Rejects if the agent did not get the notice. */
  readonly send: (notice: object) => Promise<unknown>
}

/** Endpoints with the same warning share an entry. */
interface PolicyWarning {
  readonly host: string
  /** The other hosts. */
  readonly also: string[]
  readonly warning: string
}

interface Watched {
  readonly host: string
  state: VisitorState
  toldState: VisitorState
  toldAt: number
  isDue: boolean
  oldestWaitMs: number
  seen: OutcomeCounts
  /** Load of its upstream, at the last check where it accepted no more connections. */
  pressure: ServicePressure | undefined
}

/**
 * Tells an agent how its endpoints serve visitors: on each change, and repeatedly while there is trouble.
 * Costs nothing without visitors. Also tells once which of its policies newer checks refuse.
 */
export class VisitorNotices {
  readonly #options: VisitorNoticesOptions
  readonly #watched = new Map<AgentEndpoint, Watched>()
  /** Endpoints with new results or waiting visitors since the last check. */
  readonly #active = new Set<AgentEndpoint>()
  /** Warnings about policies that the agent has not got. */
  readonly #warnings = new Map<AgentEndpoint, string>()
  readonly #sent: SlidingLog
  readonly #stopping = new AbortController()
  /** Set by a failure that the agent does not know yet. */
  readonly #failure = new AutoResetEvent()
  #isLooking = false

  constructor(options: VisitorNoticesOptions) {
    this.#options = options
    this.#sent = new SlidingLog({ capacity: PER_MINUTE, windowMs: 60_000, clock: options.clock })
  }

  watch(endpoint: AgentEndpoint): void {
    const { outcomes } = endpoint.traffic
    const watched: Watched = {
      host: endpoint.host,
      state: 'unknown',
      toldState: 'unknown',
      toldAt: Number.NEGATIVE_INFINITY,
      isDue: false,
      oldestWaitMs: 0,
      seen: { ...outcomes.counts },
      pressure: undefined,
    }
    this.#watched.set(endpoint, watched)
    outcomes.state = 'unknown'
    outcomes.onNews = (outcome) => {
      this.#active.add(endpoint)
      if (FAILURES.has(outcome) && !TROUBLES.has(watched.toldState)) this.#failure.set()
      this.#lookSoon()
    }
    const warning = refusedTodayList(endpoint.policy)
    if (warning === undefined) return
    this.#warnings.set(endpoint, warning.slice(0, MAX_WARNING))
    this.#lookSoon()
  }

  unwatch(endpoint: AgentEndpoint): void {
    endpoint.traffic.outcomes.onNews = undefined
    this.#watched.delete(endpoint)
    this.#active.delete(endpoint)
    this.#warnings.delete(endpoint)
  }

  stop(): void {
    this.#stopping.abort('stopped')
    this.#failure.set()
  }

  #lookSoon(): void {
    if (this.#isLooking || this.#stopping.signal.aborted) return
    this.#isLooking = true
    void this.#lookWhileActive()
  }

  async #lookWhileActive(): Promise<void> {
    const { clock } = this.#options
    const { signal } = this.#stopping
    let isDue = false
    while (this.#active.size > 0 || this.#warnings.size > 0 || isDue) {
      await this.#failure.wait(clock, POLL_MS - SOON_MS)
      await clock.sleep(SOON_MS, signal).catch(() => {})
      if (signal.aborted) return
      for (const endpoint of [...this.#active]) this.#poll(endpoint)
      isDue = await this.#tell()
      await this.#warn()
    }
    this.#isLooking = false
  }

  async #warn(): Promise<void> {
    if (this.#warnings.size === 0 || this.#sent.tryCount('policies') > 0) return
    const told: AgentEndpoint[] = []
    const policies = new Map<string, PolicyWarning>()
    for (const [endpoint, warning] of this.#warnings) {
      const { host } = endpoint
      const same = policies.get(warning)
      if (same) same.also.push(host)
      else policies.set(warning, { host, also: [], warning })
      if (byteLength({ policies: [...policies.values()] }) > MAX_BYTES && told.length > 0) {
        if (same) same.also.pop()
        else policies.delete(warning)
        break
      }
      told.push(endpoint)
    }
    // A connection that does not take the notice is about to end. The next connection warns again.
    for (const endpoint of told) this.#warnings.delete(endpoint)
    await this.#options.send(noticeOf({ policies: [...policies.values()] })).catch(() => {})
  }

  #poll(endpoint: AgentEndpoint): void {
    const watched = this.#watched.get(endpoint)
    const { outcomes } = endpoint.traffic
    if (outcomes.waiting === 0) this.#active.delete(endpoint)
    if (!watched) return
    const now = this.#options.clock.monotonic()
    watched.oldestWaitMs = outcomes.oldestWaitMs(now)
    const counts = countsSince(outcomes.counts, watched.seen)
    const { oldestWaitMs } = watched
    const { slots, service } = endpoint.streams
    const pressure = service && slots.pressureAt(service)
    watched.pressure = pressure ?? watched.pressure
    const busyMs = pressure?.oldestWaitMs
    const { longestMs, last } = outcomes
    const state = judgeVisitors({ counts, oldestWaitMs, longestMs, last, busyMs })
    watched.seen = { ...outcomes.counts }
    if (state === undefined) return
    watched.state = state
    outcomes.state = state
    outcomes.judgedAt = this.#options.clock.now()
    const isOld = TROUBLES.has(state) && now - watched.toldAt >= AGAIN_MS
    watched.isDue = state !== watched.toldState || isOld
  }

  /** Resolves with true while there is more to report. */
  async #tell(): Promise<boolean> {
    const due = [...this.#watched].filter(([, { isDue }]) => isDue)
    if (due.length === 0) return false
    if (this.#sent.tryCount('visitors') > 0) return true
    const told: Watched[] = []
    const visitors: object[] = []
    for (const [endpoint, watched] of due) {
      visitors.push(entryOf(endpoint, watched))
      if (byteLength({ visitors }) > MAX_BYTES) {
        visitors.pop()
        break
      }
      told.push(watched)
    }
    // Recorded before sending, so that changes during the send are reported again.
    const now = this.#options.clock.monotonic()
    const before = told.map(({ toldState }) => toldState)
    for (const watched of told) {
      Object.assign(watched, { isDue: false, toldState: watched.state, toldAt: now })
    }
    try {
      await this.#options.send(noticeOf({ visitors }))
    } catch {
      told.forEach((watched, index) => {
        Object.assign(watched, { isDue: true, toldState: before[index] })
      })
    }
    return [...this.#watched.values()].some(({ isDue }) => isDue)
  }
}

function entryOf({ traffic }: AgentEndpoint, watched: Watched): object {
  const { host, state, oldestWaitMs, pressure } = watched
  const { answered, garbage, unreachable, late, abandoned } = traffic.outcomes.counts
  return {
    host,
    // Older agents only know this word for it.
    state: state === 'busy' ? 'slow' : state,
    ...(state === 'busy' && pressure && { busy: loadOf(pressure) }),
    answered,
    abandoned,
    failed: garbage + unreachable + late,
    oldest_wait_ms: Math.round(oldestWaitMs),
  }
}

function loadOf({ connections, streams, waiting }: ServicePressure): object {
  return { connections, streams, waiting }
}

/** Update command: the SDK passes its version text on unchanged. */
function noticeOf(content: object): object {
  const version = JSON.stringify({ 'device-agent': content })
  return { Version: version, PermitMajorVersion: false }
}

function byteLength(content: object): number {
  return Buffer.byteLength(JSON.stringify(noticeOf(content)))
}
