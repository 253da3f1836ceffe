import { Backoff } from '../../base/backoff.ts'
import type { Clock } from '../../base/clock.ts'
import { AutoResetEvent } from '../../base/deferred.ts'
import type { Logger } from '../../base/logger.ts'
import { PoisonedError } from '../connector.ts'
import { type Problem, problemOf, type ShownProblem, shownProblem } from '../problem.ts'
import type { LinkTimings } from '../timings.ts'
import { refusalBackoff } from './link-pauses.ts'
import type { LinkSession, SessionEvents, SessionOpener } from './link-session.ts'

/**
 * State of the second session, which is authenticated and has no endpoints. `idle`: no session and no
 * attempts, because the link is down, its names come back first, or an attempt cannot succeed.
 */
export type StandbyState = 'idle' | 'connecting' | 'ready' | 'waiting' | 'refused' | 'stopped'

/** `release`: the session is used by the link now, or not wanted. */
export type StandbyEvent = 'connect' | 'connected' | 'failed' | 'refused' | 'release' | 'stop'

const AWAY = { release: 'idle', stop: 'stopped' } as const
const DOWN = { ...AWAY, failed: 'waiting', refused: 'refused' } as const

const NEXT: Record<StandbyState, Partial<Record<StandbyEvent, StandbyState>>> = {
  idle: { connect: 'connecting', stop: 'stopped' },
  connecting: { ...DOWN, connected: 'ready' },
  ready: DOWN,
  waiting: { ...AWAY, connect: 'connecting' },
  refused: { ...AWAY, connect: 'connecting' },
  stopped: {},
}

/** Returns the state after an event. Events that do not apply to a state are ignored. */
export function nextStandbyState(state: StandbyState, event: StandbyEvent): StandbyState {
  return NEXT[state][event] ?? state
}

/** The second session, which takes over when the link loses its session. */
export interface StandbyStatus extends ShownProblem {
  readonly state: StandbyState
  readonly serverAddr: string | undefined
}

export interface StandbyOptions {
  readonly opener: SessionOpener
  readonly events: SessionEvents
  /** The serving session. Undefined while the link is down, because the link has priority. */
  readonly serving: () => LinkSession | undefined
  readonly timings: LinkTimings
  readonly random?: () => number
  readonly clock: Clock
  readonly log: Logger
  readonly onChange: () => void
  /** Called when a session is ready. */
  readonly onReady: () => void
  /** Called if no later connect of this process can succeed. */
  readonly onPoisoned: () => void
}

/**
 * Keeps a second session ready at an address that does not serve: authenticated, without endpoints. When the
 * link loses its session, this one takes over at once. If it is still connecting then, it takes over when it
 * is ready.
 *
 * INVARIANTS
 * - Only `#run` connects, and only while the link has a session. A ready session has no endpoints, so closing
 *   it interrupts nothing.
 * - It is never at the serving address. If an address is listed twice, both are the same service.
 * - It stays at another address of the serving gateway, such as its IP address, only if no address leads to
 *   another gateway: it would be lost with that gateway. Our gateway tells its id for this.
 */
export class Standby {
  readonly #options: StandbyOptions
  readonly #backoff: Backoff
  readonly #refusals: Backoff
  readonly #wakeUp = new AutoResetEvent()
  readonly #stopping = new AbortController()
  #running: Promise<void> | undefined
  #state: StandbyState = 'idle'
  #place: number
  #ready: LinkSession | undefined
  /** The attempt in progress. */
  #attempt: { readonly place: number; readonly session: Promise<LinkSession> } | undefined
  #problem: Problem | undefined
  /** Index of the address with the problem. The next attempt may be at another address. */
  #failedAt: number | undefined
  /** Wall clock, for display. */
  #nextRetryAt: number | undefined
  /** Monotonic time of the next attempt. Infinity: no attempt until a change. */
  #tryAt = 0
  /** Monotonic time before which the names of the link come back undisturbed. */
  #restUntil = 0
  readonly #random: () => number
  /** Other addresses of the gateway of the session `of`. */
  #twins: { of?: LinkSession | undefined; places: Set<number> } = { places: new Set() }

  constructor(options: StandbyOptions) {
    const { timings } = options
    const random = options.random && { random: options.random }
    this.#options = options
    this.#random = options.random ?? Math.random
    this.#place = 1 % options.opener.places
    // No visitor waits for it, so delays grow to the longest delay of the link.
    const baseMs = timings.backoffBaseMs
    this.#backoff = new Backoff({ baseMs, capMs: timings.refusal.capMs, ...random })
    this.#refusals = refusalBackoff(timings.refusal, random)
  }

  get status(): StandbyStatus {
    return {
      state: this.#state,
      serverAddr: this.#options.opener.addressOf(this.#failedAt ?? this.#place),
      nextRetryAt: this.#nextRetryAt,
      ...shownProblem(this.#problem),
    }
  }

  start(): void {
    this.#running ??= this.#run(this.#stopping.signal)
  }

  async stop(): Promise<void> {
    this.#stopping.abort(new Error('the link is stopping'))
    this.#wakeUp.set()
    await this.#running
    await this.#release()
    this.#move('stop')
  }

  /** Hands the ready session over to the link. */
  takeReady(): LinkSession | undefined {
    const session = this.#ready
    this.#ready = undefined
    if (session) this.#move('release')
    this.changed()
    return session
  }

  /** Whether the session is this standby, and not a session of the link. */
  has(session: LinkSession): boolean {
    return this.#ready === session
  }

  /** Index of the address of its session, or of the next attempt. */
  get place(): number {
    return this.#place
  }

  /**
   * The session that is being opened at this address, if any. Rejects if that fails. This standby reports it
   * with `onReady` before the promise resolves for callers.
   */
  opening(place: number): Promise<LinkSession> | undefined {
    return this.#attempt?.place === place ? this.#attempt.session : undefined
  }

  /** Uses a session that the link does not need. Returns false if this standby does not need it either. */
  keep(session: LinkSession): boolean {
    const { opener } = this.#options
    const isMissing = !this.#ready && !this.#attempt && !this.#stopping.signal.aborted
    const isFresh = opener.isCurrent(session) && session.asked === undefined && !session.problem
    if (!isMissing || !isFresh || this.#isTaken(session.place)) return false
    this.#move('connect')
    this.#use(session)
    this.#options.onReady()
    return true
  }

  /**
   * Opens the session at this address after a pause, and at others if that fails. Replaces a session at
   * another address.
   */
  prefer(place: number, pauseMs = 0): void {
    const at = this.#options.clock.monotonic() + pauseMs
    const isOther = place !== this.#place
    this.#place = place
    if (isOther && this.#ready) this.renew()
    this.#tryAt = isOther ? at : Math.max(at, this.#tryAt)
    this.#restUntil = 0
    this.#wakeUp.set()
  }

  /** Waits before the next attempt. The link has priority until its names are back. */
  rest(): void {
    const { clock, timings } = this.#options
    this.#restUntil = clock.monotonic() + timings.spareMs * (1 - this.#random() / 2)
    this.#wakeUp.set()
  }

  /** Reports that the link has come up, that its session has another address, or that a gateway has told its id. */
  changed(): void {
    this.#wakeUp.set()
  }

  /** Replaces the ready session, which has ended or is outdated. */
  renew(): void {
    const session = this.#ready
    this.#ready = undefined
    const { clock, timings } = this.#options
    const wasStable = !session || clock.monotonic() - session.openedAt >= timings.stableMs
    if (wasStable || !session.problem) {
      this.#backoff.reset()
      this.#refusals.reset()
    }
    this.#tryAt = 0
    if (session?.problem) this.#fail(session.problem)
    else this.#move('release')
    void session?.sdk.close()
    this.#wakeUp.set()
  }

  async #run(signal: AbortSignal): Promise<void> {
    const { clock, serving } = this.#options
    while (!signal.aborted) {
      const current = serving()
      if (!current) await this.#release()
      this.#leaveTwin(current)
      const isMissing = current !== undefined && !this.#ready
      const tryAt = Math.max(this.#tryAt, this.#restUntil)
      const waitMs = isMissing ? tryAt - clock.monotonic() : Infinity
      if (waitMs > 0) await this.#wakeUp.wait(clock, Number.isFinite(waitMs) ? waitMs : undefined)
      else await this.#try(signal)
    }
  }

  /** Ends a session at the gateway that serves, because the link has moved there or both addresses lead there. */
  #leaveTwin(current: LinkSession | undefined): void {
    const { opener, log } = this.#options
    if (current !== this.#twins.of) this.#twins = { of: current, places: new Set() }
    const ready = this.#ready
    if (!ready || !current) return
    if (ready.place === current.place) {
      this.renew()
      return
    }
    if (ready.gateway === undefined || ready.gateway !== current.gateway) return
    this.#twins.places.add(ready.place)
    const place = this.#nextPlace()
    if (this.#isTaken(place)) return
    log.info(
      { serverAddr: opener.addressOf(ready.place) },
      'this address leads to the gateway that serves, so the standby session moves to another gateway',
    )
    this.renew()
    this.#place = place
  }

  async #try(signal: AbortSignal): Promise<void> {
    const { opener, events, serving, onPoisoned } = this.#options
    if (this.#isTaken(this.#place)) this.#place = this.#nextPlace()
    this.#nextRetryAt = undefined
    try {
      this.#move('connect')
      this.#attempt = { place: this.#place, session: opener.open(this.#place, events, signal) }
      const session = await this.#attempt.session
      this.#attempt = undefined
      if (session.problem) {
        this.#fail(session.problem)
        return
      }
      this.#use(session)
      const isOutdated = !opener.isCurrent(session) || session.asked !== undefined
      if (isOutdated || session.place === serving()?.place) this.renew()
      else this.#options.onReady()
    } catch (error) {
      this.#attempt = undefined
      if (signal.aborted) return
      this.#fail(problemOf(error))
      this.#place = this.#nextPlace()
      if (!(error instanceof PoisonedError)) return
      this.#tryAt = Infinity
      onPoisoned()
    }
  }

  #use(session: LinkSession): void {
    this.#ready = session
    this.#place = session.place
    this.#problem = undefined
    this.#failedAt = undefined
    this.#nextRetryAt = undefined
    this.#move('connected')
  }

  /** Returns the next address. With three or more, those that do not serve take turns. */
  #nextPlace(): number {
    const { places } = this.#options.opener
    for (let step = 1; step < places; step += 1) {
      const next = (this.#place + step) % places
      if (!this.#isTaken(next)) return next
    }
    return this.#place
  }

  /** Whether the gateway at this address serves. */
  #isTaken(place: number): boolean {
    const current = this.#options.serving()
    const { of, places } = this.#twins
    return place === current?.place || (of === current && places.has(place))
  }

  #fail(problem: Problem): void {
    const { clock, log } = this.#options
    const delayMs = (problem.permanent ? this.#refusals : this.#backoff).next()
    const isNews = this.#problem?.detail !== problem.detail
    this.#problem = problem
    this.#failedAt = this.#place
    this.#tryAt = clock.monotonic() + delayMs
    this.#nextRetryAt = clock.now() + delayMs
    const { reason, detail, serviceCode } = problem
    log[isNews ? 'warn' : 'debug']({ reason, detail, serviceCode, delayMs }, 'standby session down')
    this.#move(problem.permanent ? 'refused' : 'failed')
  }

  async #release(): Promise<void> {
    const session = this.#ready
    this.#ready = undefined
    this.#move('release')
    await session?.sdk.close()
  }

  #move(event: StandbyEvent): void {
    const before = this.#state
    this.#state = nextStandbyState(before, event)
    if (this.#state !== before) this.#options.onChange()
  }
}
