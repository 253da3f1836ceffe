import type { Clock } from '../base/clock.ts'
import { AutoResetEvent } from '../base/deferred.ts'
import type { Logger } from '../base/logger.ts'
import type { LinkStatus } from './agent-status.ts'
import { PoisonedError, type ServiceCommand, type Session } from './connector.ts'
import { hasSession, kindOf, type LinkEvent, type LinkState, nextLinkState } from './link-state.ts'
import { type Problem, problemOf, shownProblem } from './problem.ts'
import { DuplicateNotice } from './sessions/gateway-notice.ts'
import { LinkPauses } from './sessions/link-pauses.ts'
import {
  AUTHTOKEN_CHANGED,
  eventOf,
  type LinkSession,
  RESTART_ASKED,
  RetiredSessions,
  type SessionEvents,
  SessionOpener,
  type SessionOpenerOptions,
  STOP_ASKED,
} from './sessions/link-session.ts'
import { Standby } from './sessions/standby.ts'
import type { LinkTimings } from './timings.ts'

export interface LinkOptions extends SessionOpenerOptions {
  /** Keep a session ready at another address, where there are several. */
  readonly hasStandby: boolean
  readonly timings: LinkTimings
  readonly random?: () => number
  readonly clock: Clock
  readonly log: Logger
  /** Called after every change of the status. */
  readonly onChange: () => void
  /** Called when `session` is another one, and when one that was has ended. */
  readonly onSessions: () => void
  /** The SDK hangs for good; the link stays down until the process is a new one. */
  readonly onPoisoned: () => void
}

/**
 * Keeps one SDK session up: connect, hold, pause, again. A lost session is never revived. Where
 * another one is wanted while it works, that one is connected first and takes its place.
 *
 * INVARIANTS
 * - `#run` alone connects. The public methods and what sessions tell note what happened, and wake it;
 *   none but `stop()` waits for the SDK.
 * - `#current` serves. A session whose place was taken is retired: the service ends it when nothing
 *   is under way on it any more. Closed by us it would freeze what is, so that comes late.
 * - The state changes in `#move` alone, by the table of link-state.ts. `onChange` is called there, in
 *   the middle of a step: it must not wait for the link.
 * - What a session says of its end, or is told to do, is looked at with the session in hand; an
 *   earlier one can neither end nor park the present one.
 * - `authtoken()` gives the same object until the token is another one. It is compared by identity:
 *   with a copy each time, every session would be replaced right after its connect.
 */
export class Link {
  readonly #options: LinkOptions
  readonly #log: Logger
  readonly #pauses: LinkPauses
  readonly #opener: SessionOpener
  readonly #standby: Standby | undefined
  readonly #stopping = new AbortController()
  readonly #wakeUp = new AutoResetEvent()
  readonly #retired: RetiredSessions
  readonly #duplicate: DuplicateNotice
  readonly #events: SessionEvents = {
    onEnd: (session) => this.#ended(session),
    onCommand: (session, command) => this.#commanded(session, command),
    onDuplicate: (ip) => this.#duplicated(ip),
  }
  #running: Promise<void> | undefined
  #state: LinkState = 'waiting'
  #since: number
  /** `#since` on the monotonic clock: how long it has been must not change when the clock is set. */
  #changedAt: number
  #problem: Problem | undefined
  /** Not of one session: it stays until a probe comes through. */
  #distrust: Problem | undefined
  #nextRetryAt: number | undefined
  #current: LinkSession | undefined
  /** Which address is tried next, or serves. */
  #place = 0
  /** When the current session came up, monotonic. */
  #upAt = 0
  /** Why another session is wanted although the current one works. */
  #renewal: Problem | undefined
  /** Why that cannot be had. */
  #renewalProblem: Problem | undefined
  /** No connect before that, monotonic. Infinity: no use in trying before something changes. */
  #tryAt = 0
  #isParked = false
  #isPoisoned = false

  constructor(options: LinkOptions) {
    this.#options = options
    this.#log = options.log
    const random = options.random && { random: options.random }
    this.#pauses = new LinkPauses({ timings: options.timings, ...random })
    this.#opener = new SessionOpener(options)
    const { retireMs, duplicateShownMs: shownMs } = options.timings
    const { clock, onSessions } = options
    this.#retired = new RetiredSessions({ retireMs, clock, onClosed: onSessions })
    this.#duplicate = new DuplicateNotice({ shownMs, clock })
    if (options.hasStandby && this.#opener.places > 1) this.#standby = this.#createStandby(random)
    this.#since = options.clock.now()
    this.#changedAt = options.clock.monotonic()
  }

  /** The session to open endpoints on, while there is one. */
  get session(): Session | undefined {
    return hasSession(this.#state) ? this.#current?.sdk : undefined
  }

  /** `since` is when the link came up or went down; attempts in between do not count. */
  get status(): LinkStatus {
    const problem = this.#state === 'suspect' ? this.#distrust : this.#problem
    const isRenewing = this.#current !== undefined && this.#renewalProblem !== undefined
    return {
      state: this.#state,
      since: this.#since,
      forMs: this.#options.clock.monotonic() - this.#changedAt,
      serverAddr: this.#opener.addressOf(this.#current?.place ?? this.#place),
      nextRetryAt: isRenewing ? undefined : this.#nextRetryAt,
      latencyMs: this.session && this.#current?.latencyMs,
      ...shownProblem(problem),
      renewal: isRenewing
        ? { ...shownProblem(this.#renewalProblem), nextRetryAt: this.#nextRetryAt }
        : undefined,
      duplicate: this.#duplicate.current,
      standby: this.#standby?.status,
    }
  }

  start(): void {
    this.#running ??= this.#run(this.#stopping.signal)
    this.#standby?.start()
  }

  /**
   * Our gateway holds the names of the session, and what is under way may end within `drainMs`; the
   * hosted service knows nothing of that.
   */
  async stop({ drainMs }: { drainMs: number }): Promise<void> {
    this.#stopping.abort(new Error('the link is stopping'))
    this.#wakeUp.set()
    await Promise.all([this.#running, this.#standby?.stop()])
    const session = this.#current
    if (session && this.#opener.isOurs) await session.sdk.drain(drainMs)
    this.#current = undefined
    if (session) this.#retired.close(session)
    await this.#retired.stop()
    this.#move('stop')
  }

  /** Another session takes the place of the present one, although that looks alive. */
  rebuild(problem: Problem): void {
    this.#renew(problem)
  }

  /** Connects with the new token at once, whatever the link is waiting for. */
  authtokenChanged(): void {
    this.#isParked = false
    this.#pauses.reset()
    this.#tryAt = 0
    const session = this.#current
    if (session && this.#opener.hasAuthtoken) this.#renewal = AUTHTOKEN_CHANGED
    // The token was taken away: nothing may go on with it.
    else if (session) this.#giveUp(session)
    this.#standby?.renew()
    this.#wakeUp.set()
  }

  /** The agent does not reach itself through this link: nothing is online until `trust()`. */
  distrust(problem: Problem): void {
    this.#distrust = problem
    this.#move('distrust')
  }

  trust(): void {
    this.#distrust = undefined
    this.#move('trust')
  }

  async #run(signal: AbortSignal): Promise<void> {
    const { clock } = this.#options
    while (!signal.aborted) {
      const isContent = this.#current !== undefined && this.#renewal === undefined
      const waitMs = isContent ? Infinity : this.#tryAt - clock.monotonic()
      if (waitMs > 0) await this.#wakeUp.wait(clock, Number.isFinite(waitMs) ? waitMs : undefined)
      else await this.#try(signal)
    }
  }

  async #try(signal: AbortSignal): Promise<void> {
    this.#nextRetryAt = undefined
    try {
      this.#opener.requireAuthtoken()
      this.#move('connect')
      const session = await this.#opener.open(this.#place, this.#events, signal)
      this.#adopt(session)
    } catch (error) {
      if (signal.aborted) return
      this.#failTry(error)
    }
  }

  #failTry(error: unknown): void {
    this.#nextPlace()
    const problem = problemOf(error)
    const isPoisoned = error instanceof PoisonedError
    const isUseless = isPoisoned || !this.#opener.hasAuthtoken
    this.#fail(problem, isUseless ? Infinity : this.#pauses.after(problem))
    if (isPoisoned) this.#poisoned()
  }

  /** The session serves from now on; the one that did is left to the service. */
  #adopt(session: LinkSession): void {
    if (this.#isParked || session.asked === 'stop') this.#park(session)
    else if (session.problem) this.#lost(session, session.problem)
    else this.#serve(session)
  }

  /** It broke before it could serve. */
  #lost(session: LinkSession, problem: Problem): void {
    this.#retired.close(session)
    this.#fail(problem, this.#pauses.after(problem))
  }

  #serve(session: LinkSession): void {
    const before = this.#current
    this.#current = session
    this.#place = session.place
    this.#upAt = this.#options.clock.monotonic()
    this.#problem = undefined
    this.#renewal = undefined
    this.#renewalProblem = undefined
    this.#nextRetryAt = undefined
    if (session.asked === 'restart') this.#renew(RESTART_ASKED)
    if (!this.#opener.isCurrent(session)) this.#renew(AUTHTOKEN_CHANGED, 0)
    if (before) this.#retired.retire(before)
    // The one before may have ended while this one was being connected.
    this.#move('connect')
    this.#move('connected')
    if (this.#distrust) this.#move('distrust')
    this.#standby?.changed()
    this.#options.onSessions()
    this.#options.onChange()
  }

  #ended(session: LinkSession): void {
    const { problem } = session
    if (this.#standby?.has(session)) this.#standby.renew()
    else if (session === this.#current && problem) this.#lose(session, problem)
    else this.#retired.finish(session)
  }

  #lose(session: LinkSession, problem: Problem): void {
    this.#leaveCurrent()
    this.#retired.close(session)
    if (this.#stopping.signal.aborted) return
    const pauseMs = this.#pauses.afterLoss(problem, this.#options.clock.monotonic() - this.#upAt)
    const next = this.#standby?.take()
    if (next) {
      this.#log.warn({ detail: problem.detail }, 'link down, the standby session takes over')
      this.#adopt(next)
    } else {
      this.#nextPlace()
      this.#fail(problem, pauseMs)
      if (this.#isPoisoned) this.#poisoned()
      this.#options.onSessions()
    }
    this.#wakeUp.set()
  }

  #commanded(session: LinkSession, command: ServiceCommand): void {
    const isStandby = this.#standby?.has(session)
    if (session !== this.#current && !isStandby) return
    if (command === 'stop') this.#park(session)
    else if (isStandby) this.#standby?.renew()
    else this.#renew(RESTART_ASKED)
    this.#wakeUp.set()
  }

  /** Ended for good, unless the token changes: the session may be the link's or a new one. */
  #park(session: LinkSession): void {
    this.#isParked = true
    const current = this.#current
    this.#leaveCurrent()
    this.#fail(STOP_ASKED, Infinity)
    if (!this.#standby?.has(session)) this.#retired.close(session)
    if (current && current !== session) this.#retired.close(current)
    this.#options.onSessions()
    this.#standby?.changed()
  }

  #giveUp(session: LinkSession): void {
    this.#leaveCurrent()
    this.#retired.close(session)
    this.#options.onSessions()
  }

  /** Where there are several addresses, the next try goes to another one. */
  #nextPlace(): void {
    this.#place = (this.#place + 1) % this.#opener.places
  }

  #leaveCurrent(): void {
    this.#current = undefined
    this.#renewal = undefined
    this.#renewalProblem = undefined
  }

  /** A session that has just come up gets a pause: a service may ask again and again. */
  #renew(problem: Problem, pauseMs?: number): void {
    const now = this.#options.clock.monotonic()
    if (!this.#current || this.#renewal) return
    this.#renewal = problem
    this.#place = this.#current.place
    this.#tryAt = now + (pauseMs ?? this.#pauses.afterLoss(problem, now - this.#upAt))
    this.#log.info({ detail: problem.detail }, 'replacing the session')
    this.#wakeUp.set()
  }

  /** Nothing serves, or what serves cannot be replaced: it is tried again after the pause. */
  #fail(problem: Problem, delayMs: number): void {
    const { clock } = this.#options
    const known = this.#current ? this.#renewalProblem : this.#problem
    const isNews = known?.detail !== problem.detail
    this.#tryAt = clock.monotonic() + delayMs
    this.#nextRetryAt = Number.isFinite(delayMs) ? clock.now() + delayMs : undefined
    const { detail, reason, serviceCode } = problem
    const level = isNews ? 'warn' : 'debug'
    const what = this.#current ? 'session renewal failed' : 'link down'
    const pause = Number.isFinite(delayMs) ? { delayMs } : {}
    this.#log[level]({ reason, detail, serviceCode, ...pause }, what)
    if (this.#current) {
      this.#renewalProblem = problem
      this.#options.onChange()
      return
    }
    this.#problem = problem
    this.#move(eventOf(problem))
  }

  /** A session that serves goes on: the process has to be another one when it ends. */
  #poisoned(): void {
    this.#isPoisoned = true
    if (!this.#current) this.#options.onPoisoned()
  }

  #duplicated(ip: string): void {
    if (this.#duplicate.note(ip)) this.#log.warn({ ip }, 'another device has the same identity')
    this.#options.onChange()
  }

  #createStandby(random: { random: () => number } | undefined): Standby {
    const { timings, clock, log, onChange } = this.#options
    return new Standby({
      opener: this.#opener,
      events: this.#events,
      serving: () => this.#current?.place,
      timings,
      clock,
      log,
      onChange,
      onPoisoned: () => this.#poisoned(),
      ...random,
    })
  }

  #move(event: LinkEvent): void {
    const before = this.#state
    this.#state = nextLinkState(before, event)
    if (this.#state === before && event !== 'failed' && event !== 'refused') return
    if (kindOf(this.#state) !== kindOf(before)) {
      this.#since = this.#options.clock.now()
      this.#changedAt = this.#options.clock.monotonic()
    }
    if (event === 'connected') this.#log.info('link up')
    this.#options.onChange()
  }
}
