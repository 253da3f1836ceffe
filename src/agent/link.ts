import { Backoff } from '../base/backoff.ts'
import type { Clock } from '../base/clock.ts'
import { AutoResetEvent } from '../base/deferred.ts'
import type { Logger } from '../base/logger.ts'
import type { LinkStatus } from './agent-status.ts'
import { PoisonedError, type ServiceCommand, type Session } from './connector.ts'
import { hasSession, kindOf, type LinkEvent, type LinkState, nextLinkState } from './link-state.ts'
import { type Problem, problemOf, shownProblem } from './problem.ts'
import { isUnconfirmed } from './service-error.ts'
import { DuplicateNotice } from './sessions/gateway-notice.ts'
import { LinkLosses, LinkPauses } from './sessions/link-pauses.ts'
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
  UNCONFIRMED,
} from './sessions/link-session.ts'
import { Standby } from './sessions/standby.ts'
import type { LinkTimings } from './timings.ts'

export interface LinkOptions extends SessionOpenerOptions {
  /** Whether to keep a session ready at another address, if there are several. */
  readonly hasStandby: boolean
  readonly timings: LinkTimings
  readonly random?: () => number
  readonly clock: Clock
  readonly log: Logger
  /** Called after every change of the status. */
  readonly onChange: () => void
  /** Called when `session` has changed, and when an earlier session has ended. */
  readonly onSessions: () => void
  /** Called if the SDK hangs permanently. The link stays down until a new process starts. */
  readonly onPoisoned: () => void
}

/**
 * Keeps one SDK session up: connects, waits for its end, pauses, connects again. A lost session is never
 * reused. To replace a working session, the new one is connected first.
 *
 * INVARIANTS
 * - Only `#run` and the standby connect. Public methods and session events only record a change and wake it.
 *   Only `stop()` waits for the SDK.
 * - While there is no session, the first session of either serves. A later session becomes the standby or is
 *   closed.
 * - `#current` serves. A replaced session is retired: the service ends it when it has no requests in
 *   progress. A close by this side would interrupt them, so it comes late.
 * - Only `#move` changes the state, by the table in link-state.ts. It calls `onChange` in the middle of a
 *   step, so `onChange` must not wait for the link.
 * - Events of a session are handled together with that session. An earlier session can neither end nor park
 *   the current one.
 * - `authtoken()` returns the same object until the token changes. It is compared by identity: with a copy
 *   per call, every session would be replaced right after its connect.
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
  readonly #losses: LinkLosses
  readonly #events: SessionEvents = {
    onEnd: (session) => this.#ended(session),
    onCommand: (session, command) => this.#commanded(session, command),
    onDuplicate: (ip) => this.#duplicated(ip),
    onGateway: () => this.#standby?.changed(),
  }
  #running: Promise<void> | undefined
  #state: LinkState = 'waiting'
  #since: number
  /** `#since` on the monotonic clock, because a duration must not change when the clock is set. */
  #changedAt: number
  #problem: Problem | undefined
  /** Belongs to the link and not to a session: it stays until a probe succeeds. */
  #distrust: Problem | undefined
  #nextRetryAt: number | undefined
  #current: LinkSession | undefined
  /** Index of the serving address, or of the next one to try. */
  #place = 0
  /** Index of the address whose gateway opened an endpoint last: it holds the names. */
  #home: number | undefined
  /** Whether the gateway of the current session refuses names that it cannot confirm. */
  #isUnconfirmed = false
  readonly #moves: Backoff
  /** Monotonic time before which the link does not try yet another gateway for its names. */
  #moveAt = 0
  /** Reason to replace the current session although it works. */
  #renewal: Problem | undefined
  /** Reason why the replacement failed. */
  #renewalProblem: Problem | undefined
  /** Monotonic time of the next connect. Infinity: no attempt until a change. */
  #tryAt = 0
  #isParked = false
  #isPoisoned = false

  constructor(options: LinkOptions) {
    this.#options = options
    this.#log = options.log
    const random = options.random && { random: options.random }
    this.#pauses = new LinkPauses({ timings: options.timings, ...random })
    this.#opener = new SessionOpener(options)
    const { backoffBaseMs: baseMs, refusal } = options.timings
    this.#moves = new Backoff({ baseMs, capMs: refusal.capMs, ...random })
    const { retireMs, duplicateShownMs: shownMs } = options.timings
    const { clock, onSessions } = options
    this.#retired = new RetiredSessions({ retireMs, clock, onClosed: onSessions })
    this.#duplicate = new DuplicateNotice({ shownMs, clock })
    this.#losses = new LinkLosses(clock)
    if (options.hasStandby && this.#opener.places > 1) this.#standby = this.#createStandby(random)
    this.#since = options.clock.now()
    this.#changedAt = options.clock.monotonic()
  }

  /** The session to open endpoints on, if there is one. */
  get session(): Session | undefined {
    return hasSession(this.#state) ? this.#current?.sdk : undefined
  }

  /** `since` is the time at which the link came up or went down. Attempts in between do not change it. */
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
      losses: this.#losses.count,
    }
  }

  start(): void {
    this.#running ??= this.#run(this.#stopping.signal)
    this.#standby?.start()
  }

  /**
   * Stops the link. Our gateway holds the names of the session, and requests in progress may finish within
   * `drainMs`. The hosted service does not support this.
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

  /** Replaces the current session, although it seems to work. */
  rebuild(problem: Problem): void {
    this.#renew(problem)
  }

  /** Connects with the new token at once, in any state. */
  authtokenChanged(): void {
    this.#isParked = false
    this.#pauses.reset()
    this.#tryAt = 0
    const session = this.#current
    if (session && this.#opener.hasAuthtoken) this.#renewal = AUTHTOKEN_CHANGED
    // Without a token the session must not continue.
    else if (session) this.#giveUp(session)
    this.#standby?.renew()
    this.#wakeUp.set()
  }

  /**
   * Reports an attempt to open an endpoint on a session. A gateway that does not reach PostgreSQL cannot
   * confirm names that another gateway holds. The link then goes to that gateway.
   */
  tried(sdk: Session, problem: Problem | undefined): void {
    const session = this.#current
    if (session?.sdk !== sdk) return
    if (!problem) {
      this.#home = session.place
      this.#isUnconfirmed = false
      this.#moves.reset()
      this.#moveAt = 0
    } else if (isUnconfirmed(problem) && session.place !== this.#home) {
      this.#isUnconfirmed = true
      this.#moveHome()
    }
  }

  /** Reports that the agent cannot reach itself through this link. No tunnel is online until `trust()`. */
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
      const waitMs = this.#isContent ? Infinity : this.#tryAt - clock.monotonic()
      if (waitMs > 0) await this.#wakeUp.wait(clock, Number.isFinite(waitMs) ? waitMs : undefined)
      else await this.#try(signal)
    }
  }

  /** Whether there is a session, and no reason to replace it. */
  get #isContent(): boolean {
    return this.#current !== undefined && this.#renewal === undefined
  }

  async #try(signal: AbortSignal): Promise<void> {
    this.#nextRetryAt = undefined
    try {
      this.#opener.requireAuthtoken()
      this.#move('connect')
      // A second connect to the same gateway would only delay the first.
      if (!this.#current) await this.#standby?.opening(this.#place)
      if (this.#isContent || this.#isParked) return
      const session = await this.#opener.open(this.#place, this.#events, signal)
      this.#adopt(session)
    } catch (error) {
      if (signal.aborted) return
      this.#failTry(error)
    }
  }

  #failTry(error: unknown): void {
    const isPoisoned = error instanceof PoisonedError
    // Otherwise the standby serves meanwhile, so nothing has to be tried again.
    if (!this.#isContent) {
      this.#nextPlace()
      const problem = problemOf(error)
      const isUseless = isPoisoned || !this.#opener.hasAuthtoken
      this.#fail(problem, isUseless ? Infinity : this.#pauses.after(problem))
    }
    if (isPoisoned) this.#poisoned()
  }

  /** Makes the session of an attempt the serving one, if one is still needed. */
  #adopt(session: LinkSession): void {
    if (this.#isParked || session.asked === 'stop') this.#park(session)
    else if (this.#isContent) this.#spare(session)
    else if (session.problem) this.#lost(session, session.problem)
    else this.#serve(session)
  }

  /** Handles a session that came when the standby served already. */
  #spare(session: LinkSession): void {
    const before = this.#current
    const isNeeded = this.#isUnconfirmed && session.place === this.#home && !session.problem
    if (isNeeded && before) {
      this.#serve(session)
      this.#retired.finish(before)
    } else if (!this.#standby?.keep(session)) this.#retired.close(session)
  }

  /** The standby session serves if the link has none, or if its gateway may hold the names. */
  #standbyReady(): void {
    if (this.#current) this.#moveHome()
    else if (!this.#isParked && !this.#stopping.signal.aborted) {
      const next = this.#standby?.takeReady()
      if (!next) return
      this.#log.info('the standby session takes over')
      this.#serve(next)
      this.#standby?.rest()
      this.#wakeUp.set()
    }
  }

  /**
   * Lets the standby session serve if its gateway may hold the names. The current session has no endpoints.
   * After a restart of the agent, the gateway is not known, so the link tries one after another.
   */
  #moveHome(): void {
    const standby = this.#standby
    const before = this.#current
    if (!before || !this.#isUnconfirmed) return
    const now = this.#options.clock.monotonic()
    const home = this.#home
    if (!standby) {
      this.#renew(UNCONFIRMED, this.#moves.next(), home ?? (before.place + 1) % this.#opener.places)
      return
    }
    const isAtHome = home !== undefined && standby.place === home
    if (!isAtHome && now < this.#moveAt) return
    if (home !== undefined) standby.prefer(home)
    const next = home === undefined || isAtHome ? standby.takeReady() : undefined
    if (!isAtHome && (next || home !== undefined)) this.#moveAt = now + this.#moves.next()
    if (!next) return
    this.#log.info('the gateway cannot confirm names, the standby session takes over')
    this.#serve(next)
    this.#retired.finish(before)
  }

  /** Handles a session that failed before it could serve. */
  #lost(session: LinkSession, problem: Problem): void {
    this.#retired.close(session)
    this.#fail(problem, this.#pauses.after(problem))
  }

  #serve(session: LinkSession): void {
    const before = this.#current
    this.#current = session
    this.#place = session.place
    this.#isUnconfirmed = false
    this.#problem = undefined
    this.#renewal = undefined
    this.#renewalProblem = undefined
    this.#nextRetryAt = undefined
    if (session.asked === 'restart') this.#renew(RESTART_ASKED)
    if (!this.#opener.isCurrent(session)) this.#renew(AUTHTOKEN_CHANGED, 0)
    if (before) this.#retired.retire(before)
    // The previous session may have ended while this one was connecting.
    this.#move('connect')
    this.#move('connected')
    if (this.#distrust) this.#move('distrust')
    if (session.place === this.#home) this.#standby?.rest()
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
    // The service announced this end, so the network is not the cause.
    if (!session.asked) this.#losses.note()
    const pauseMs = this.#pauses.afterLoss(
      problem,
      this.#options.clock.monotonic() - session.openedAt,
    )
    const next = this.#standby?.takeReady()
    // It may be back at once, and holds the names.
    this.#standby?.prefer(this.#home ?? session.place, pauseMs)
    if (next) {
      this.#log.warn({ detail: problem.detail }, 'link down, the standby session takes over')
      this.#serve(next)
    } else {
      // Both sessions broke, so all gateways may still work. The one that holds the names is best.
      if (this.#standby && this.#home !== undefined) this.#place = this.#home
      else this.#nextPlace()
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

  /** Ends the link until the token changes. The session may be the current one or a new one. */
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

  /** Selects another address for the next attempt, if there are several. */
  #nextPlace(): void {
    this.#place = (this.#place + 1) % this.#opener.places
  }

  #leaveCurrent(): void {
    this.#current = undefined
    this.#renewal = undefined
    this.#renewalProblem = undefined
  }

  /** Delays the replacement of a session that has just come up, because a service may ask repeatedly. */
  #renew(problem: Problem, pauseMs?: number, place = this.#current?.place): void {
    const now = this.#options.clock.monotonic()
    if (!this.#current || this.#renewal || place === undefined) return
    this.#renewal = problem
    this.#place = place
    this.#tryAt = now + (pauseMs ?? this.#pauses.afterLoss(problem, now - this.#current.openedAt))
    this.#log.info({ detail: problem.detail }, 'replacing the session')
    this.#wakeUp.set()
  }

  /** Handles a failed connect or renewal, and schedules the next attempt. */
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

  /** Requests a new process. A serving session continues until it ends. */
  #poisoned(): void {
    this.#isPoisoned = true
    if (!this.#current) this.#options.onPoisoned()
  }

  #duplicated(ip: string): void {
    if (this.#duplicate.note(ip))
      this.#log.warn(
        { ip },
        'another device has the same identity: stop one of the two, or run device-agent identity reset --yes on the copy',
      )
    this.#options.onChange()
  }

  #createStandby(random: { random: () => number } | undefined): Standby {
    const { timings, clock, log, onChange } = this.#options
    return new Standby({
      opener: this.#opener,
      events: this.#events,
      serving: () => this.#current,
      timings,
      clock,
      log,
      onChange,
      onReady: () => this.#standbyReady(),
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
