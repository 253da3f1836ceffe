import { isDeepStrictEqual } from 'node:util'
import { Backoff } from '../base/backoff.ts'
import type { Clock } from '../base/clock.ts'
import { AutoResetEvent, createDeferred, type Deferred } from '../base/deferred.ts'
import type { Logger } from '../base/logger.ts'
import type { Conflicts } from './conflicts.ts'
import type { EndpointRequest, Listener, Session } from './connector.ts'
import { type Problem, problemOf } from './problem.ts'
import { refusalBackoff } from './sessions/link-pauses.ts'
import type { TunnelTimings } from './timings.ts'
import {
  nextTunnelState,
  type SupervisedState,
  shownTunnelState,
  type TunnelEvent,
  type TunnelState,
} from './tunnel-state.ts'

/** Endpoint to open. The supervisor adds `onDropped`. */
export type WantedEndpoint = Omit<EndpointRequest, 'onDropped'>

export interface TunnelSupervisorOptions {
  /** The session to open on. `linkChanged()` reports that it has changed or ended. */
  readonly session: () => Session | undefined
  /** Called before each opening. Throws a ProblemError if it must not be opened. */
  readonly wanted: () => Promise<WantedEndpoint>
  readonly timings: TunnelTimings
  /** Shared by all tunnels of the agent. */
  readonly conflicts: Conflicts
  readonly random?: () => number
  readonly clock: Clock
  readonly log: Logger
  /** Called after every change of the status. */
  readonly onChange: () => void
  /** Called after each attempt on a session, with the problem of a failed one. */
  readonly onTried?: ((session: Session, problem: Problem | undefined) => void) | undefined
}

/**
 * Status of one tunnel, without the link. Without a problem, it waits for the link. With a problem it may
 * also be online, in its previous version.
 */
export interface SupervisedStatus {
  readonly state: TunnelState
  /** Time at which it came online or went offline. Attempts in between do not change it. */
  readonly since: number
  readonly problem: Problem | undefined
  readonly nextRetryAt: number | undefined
}

/** One attempt to open the endpoint. The service may close it before the SDK reports it as open. */
interface Opening {
  readonly session: Session
  readonly wanted: WantedEndpoint
  dropped?: Problem
}

interface OpenEndpoint extends Opening {
  readonly listener: Listener
}

/**
 * Manages one tunnel in a loop, until it is stopped. The loop compares the wanted endpoint with the open one,
 * and opens or closes it. Outside events only wake the loop.
 *
 * INVARIANTS
 * - Only `#run` opens and closes, one step at a time. Public methods set a field and wake it. Only `stop()`
 *   waits for the service.
 * - The open endpoint stays until the wanted one is open, on the same session or on the next one. Exception:
 *   a service without takeover of names gets it closed first.
 * - Each turn of the loop decides only by `session()` and the fields. The number and reasons of wake-ups do
 *   not matter.
 * - `#open` belongs to the session it was opened on. It is closed only on the current session of the link. On
 *   an earlier session it ends with that session.
 * - Only `#move` changes the state, by the table in tunnel-state.ts. In all states except `opening` and
 *   `replacing`, `#settled` is resolved. So callers never wait for a paused or stopped supervisor.
 * - `#isOutdated` is cleared before `wanted()` is called. Later changes cause another turn.
 */
export class TunnelSupervisor {
  readonly #options: TunnelSupervisorOptions
  readonly #backoff: Backoff
  readonly #refusals: Backoff
  readonly #wakeUp = new AutoResetEvent()
  #running: Promise<void> | undefined
  #isStopping = false
  /** Whether the open endpoint stays open when this stops. */
  #isLeaving = false
  /** Whether the open endpoint differs from the wanted one. */
  #isOutdated = false
  #open: OpenEndpoint | undefined
  /** Session with a final result: the endpoint is open there, or was refused. */
  #concludedOn: Session | undefined
  /** Reason why the service closed the endpoint. */
  #dropped: Problem | undefined
  #settled: Deferred<void> = createDeferred()
  #url: string | undefined
  /** Monotonic. After a long time open, delays start from the shortest one again. */
  #openedAt = 0
  /** Monotonic time since which the service reports that the domain is online elsewhere. */
  #ghostSince: number | undefined
  #state: SupervisedState = 'opening'
  #status: SupervisedStatus

  constructor(options: TunnelSupervisorOptions) {
    this.#options = options
    const { backoffBaseMs, backoffCapMs, refusal } = options.timings
    const random = options.random && { random: options.random }
    this.#backoff = new Backoff({ baseMs: backoffBaseMs, capMs: backoffCapMs, ...random })
    this.#refusals = refusalBackoff(refusal, random)
    this.#status = {
      state: 'opening',
      since: options.clock.now(),
      problem: undefined,
      nextRetryAt: undefined,
    }
  }

  get status(): SupervisedStatus {
    return this.#status
  }

  /** Public URL from the service, once the tunnel was open. */
  get url(): string | undefined {
    return this.#url
  }

  /** URL that the SDK dials for the open endpoint. */
  get dialUrl(): string | undefined {
    return this.#open?.wanted.dialUrl
  }

  start(): void {
    this.#running ??= this.#run()
  }

  /** Closes the endpoint at the service. Further calls wait for the first. */
  async stop(): Promise<void> {
    this.#isStopping = true
    this.#move('close')
    this.#wakeUp.set()
    await this.#running
  }

  /** Stops like `stop()`, but leaves the endpoint at the service for a short absence. */
  stopKeepingEndpoint(): Promise<void> {
    this.#isLeaving = true
    return this.stop()
  }

  /** Whether it is open on a session, or was refused there. */
  isConcludedOn(session: Session): boolean {
    return this.#concludedOn === session
  }

  /** Resolves when the current attempt has an outcome: online, refused or waiting. */
  settled(): Promise<void> {
    return this.#settled.promise
  }

  /** Opens a new version at once, which replaces the open endpoint. */
  reopen(): void {
    const earlier = this.#settled
    this.#isOutdated = true
    this.#settled = createDeferred()
    // Earlier waiters get the result of this attempt.
    void this.#settled.promise.then(earlier.resolve)
    // Problems of the previous version do not apply to the new one.
    this.#status = { ...this.#status, problem: undefined }
    this.#ghostSince = undefined
    this.#resetPauses()
    this.#move(this.#open ? 'replace' : 'open')
    this.#wakeUp.set()
  }

  /** Reports that the session has changed, or that an earlier one has ended. */
  linkChanged(): void {
    this.#wakeUp.set()
  }

  async #run(): Promise<void> {
    while (!this.#isStopping) {
      this.#leaveLost()
      const session = this.#options.session()
      if (this.#dropped) await this.#pause(this.#dropped)
      else if (!session) await this.#waitForLink()
      else if (this.#isAsWanted(session)) await this.#wakeUp.wait()
      else await this.#tryOpen(session)
    }
    if (!this.#isLeaving) await this.#open?.listener.close()
  }

  #isAsWanted(session: Session): boolean {
    return this.#open?.session === session && !this.#isOutdated
  }

  /**
   * Endpoints end with their session. A session that is still alive serves until the next one has the
   * endpoint.
   */
  #leaveLost(): void {
    const session = this.#options.session()
    if (!this.#open || this.#open.session === session) return
    if (session && this.#open.session.isAlive) return
    this.#forgetEndpoint()
    this.#move('failed')
  }

  async #tryOpen(session: Session): Promise<void> {
    this.#move(this.#open ? 'replace' : 'open')
    this.#isOutdated = false
    try {
      const wanted = await this.#options.wanted()
      const isOpen = this.#open?.session === session && isDeepStrictEqual(this.#open.wanted, wanted)
      if (!isOpen) await this.#replace({ session, wanted })
      if (this.#isOutdated || this.#dropped) return
      this.#concludedOn = session
      this.#move('opened')
      this.#options.onTried?.(session, undefined)
    } catch (error) {
      // If the session is gone, that is the reason, and not the error from the SDK.
      const isNews = session === this.#options.session() && !this.#isOutdated
      if (!isNews) return
      const problem = problemOf(error)
      if (problem.permanent || problem.reason === 'conflict') this.#concludedOn = session
      this.#options.onTried?.(session, problem)
      // The link may have another session now.
      if (session === this.#options.session()) await this.#pause(problem)
    }
  }

  /** Opens the wanted endpoint, then closes the previous one. */
  async #replace(opening: Opening): Promise<void> {
    const listener = await this.#openBeside(opening)
    const before = this.#open
    this.#openedAt = this.#options.clock.monotonic()
    this.#open = undefined
    this.#dropped = opening.dropped
    if (!opening.dropped) {
      this.#open = Object.assign(opening, { listener })
      this.#url = listener.url
      if (this.#ghostSince !== undefined) this.#options.conflicts.freed()
      this.#ghostSince = undefined
    }
    if (before?.session === opening.session) await before.listener.close()
  }

  async #openBeside(opening: Opening): Promise<Listener> {
    const { session, wanted } = opening
    const request = { ...wanted, onDropped: (problem: Problem) => this.#drop(opening, problem) }
    try {
      return await session.open(request)
    } catch (error) {
      const before = this.#open
      if (!before || problemOf(error).reason !== 'conflict') throw error
      // The hosted service does not support takeover, so the name has to be released first.
      this.#forgetEndpoint()
      this.#move('open')
      await before.listener.close()
      return await session.open(request)
    }
  }

  async #waitForLink(): Promise<void> {
    this.#move('failed')
    await this.#wakeUp.wait()
  }

  #drop(opening: Opening, problem: Problem): void {
    opening.dropped ??= problem
    // During an opening, the loop continues by itself. `set()` would stay pending and shorten the next pause.
    if (this.#open !== opening) return
    this.#forgetEndpoint()
    this.#dropped = problem
    this.#wakeUp.set()
  }

  #forgetEndpoint(): void {
    const { clock, timings } = this.#options
    this.#open = undefined
    if (clock.monotonic() - this.#openedAt >= timings.stableMs) this.#resetPauses()
  }

  #resetPauses(): void {
    this.#backoff.reset()
    this.#refusals.reset()
  }

  async #pause(problem: Problem): Promise<void> {
    const { clock, conflicts } = this.#options
    const { event, delayMs } = this.#judge(problem)
    this.#dropped = undefined
    // The previous version is still open. After the pause, the replacement is tried again.
    if (this.#open) this.#isOutdated = true
    this.#move(this.#open ? 'kept' : event, problem, Math.ceil(clock.now() + delayMs))
    const isConflict = event === 'refused' && !problem.permanent
    if (isConflict) await conflicts.wait(this.#wakeUp, delayMs)
    else await this.#wakeUp.wait(clock, delayMs)
  }

  #judge(problem: Problem): { event: TunnelEvent; delayMs: number } {
    const { clock, conflicts, random = Math.random, timings } = this.#options
    if (problem.permanent) return { event: 'refused', delayMs: this.#refusals.next() }
    if (problem.reason !== 'conflict') return { event: 'failed', delayMs: this.#backoff.next() }
    // At first, the service may still count our own earlier session. Later, another device has the name.
    this.#ghostSince ??= clock.monotonic()
    const isGhost = clock.monotonic() - this.#ghostSince < timings.ghostMs
    return isGhost
      ? { event: 'failed', delayMs: timings.ghostRetryMs * (0.5 + random() / 2) }
      : { event: 'refused', delayMs: conflicts.pauseMs() }
  }

  #move(event: TunnelEvent, problem?: Problem, nextRetryAt?: number): void {
    const before = this.#status
    this.#state = nextTunnelState(this.#state, event)
    const isTrying = this.#state === 'opening' || this.#state === 'replacing'
    const state = shownTunnelState(this.#state)
    const { clock, onChange } = this.#options
    this.#status = {
      state,
      since: kindOf(state) === kindOf(before.state) ? before.since : clock.now(),
      problem: isTrying ? before.problem : problem,
      nextRetryAt,
    }
    if (!isTrying) this.#settled.resolve()
    this.#report(event, before)
    onChange()
  }

  /** Logs each change once, because a device that is offline for a week must not fill its disk. */
  #report(event: TunnelEvent, before: SupervisedStatus): void {
    const { log } = this.#options
    const { state, problem } = this.#status
    if (event === 'opened' && state === 'online') log.info({ url: this.#url }, 'tunnel online')
    if (!problem || event === 'open' || event === 'replace') return
    const { reason, detail, serviceCode } = problem
    const level = detail === before.problem?.detail ? 'debug' : 'warn'
    const what =
      event === 'kept' ? 'tunnel update failed, previous version stays online' : `tunnel ${state}`
    log[level]({ reason, detail, serviceCode }, what)
  }
}

/** Returns the group of a state for `since`: all attempts while a tunnel is offline belong to one outage. */
function kindOf(state: TunnelState): string {
  return state === 'online' || state === 'closing' ? state : 'down'
}
