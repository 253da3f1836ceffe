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

/** What is to be open; `onDropped` is the supervisor's own. */
export type WantedEndpoint = Omit<EndpointRequest, 'onDropped'>

export interface TunnelSupervisorOptions {
  /** The session to open on; `linkChanged()` says that it is another one or gone. */
  readonly session: () => Session | undefined
  /** Asked before each opening. Throws a ProblemError when it must not be opened. */
  readonly wanted: () => Promise<WantedEndpoint>
  readonly timings: TunnelTimings
  /** Of all tunnels of the agent. */
  readonly conflicts: Conflicts
  readonly random?: () => number
  readonly clock: Clock
  readonly log: Logger
  /** Called after every change of the status. */
  readonly onChange: () => void
}

/**
 * Own view of one tunnel. Without a problem it waits for the link. With one it may be online, too:
 * as it was wanted before.
 */
export interface SupervisedStatus {
  readonly state: TunnelState
  /** When it came online or ceased to be; tries in between do not count. */
  readonly since: number
  readonly problem: Problem | undefined
  readonly nextRetryAt: number | undefined
}

/** One opening of the endpoint; the service may close it before the SDK has said that it is open. */
interface Opening {
  readonly session: Session
  readonly wanted: WantedEndpoint
  dropped?: Problem
}

interface OpenEndpoint extends Opening {
  readonly listener: Listener
}

/**
 * The whole life of one tunnel: a loop that compares what is wanted with what is open and closes
 * the gap, until it is stopped. Everything that happens outside only wakes it.
 *
 * INVARIANTS
 * - `#run` alone opens and closes, one thing after the other. The public methods set a field and
 *   wake it; none but `stop()` waits for the service.
 * - What is open stays until what is wanted now is open, on the same session or on the next one. Only
 *   a service that lets nobody take over a name of his own gets it closed first.
 * - Each turn of the loop decides anew, by `session()` and the fields, so it does not matter how
 *   often, or for what, it was woken.
 * - `#open` belongs to the session that it was opened on. It is closed on the session that is still
 *   the link's, never on an earlier one: it goes with that.
 * - The state changes in `#move` alone, by the table of tunnel-state.ts. In every state but `opening`
 *   and `replacing` `#settled` is resolved, so nobody waits for a supervisor that pauses or has stopped.
 * - `#isOutdated` is cleared before `wanted()` is asked: what changes later makes another turn.
 */
export class TunnelSupervisor {
  readonly #options: TunnelSupervisorOptions
  readonly #backoff: Backoff
  readonly #refusals: Backoff
  readonly #wakeUp = new AutoResetEvent()
  #running: Promise<void> | undefined
  #isStopping = false
  /** What is open stays open when this stops. */
  #isLeaving = false
  /** What is open is not what is wanted any more. */
  #isOutdated = false
  #open: OpenEndpoint | undefined
  /** Where it is known for good what becomes of it: it is open there, or refused. */
  #concludedOn: Session | undefined
  /** Why the service closed the endpoint. */
  #dropped: Problem | undefined
  #settled: Deferred<void> = createDeferred()
  #url: string | undefined
  /** Monotonic; an endpoint that stayed open for long starts again from the shortest pause. */
  #openedAt = 0
  /** Since when, monotonic, the service says that the domain is online elsewhere. */
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

  /** The public URL that the service gave, once it was open. */
  get url(): string | undefined {
    return this.#url
  }

  /** What the SDK dials for the endpoint that is open. */
  get dialUrl(): string | undefined {
    return this.#open?.wanted.dialUrl
  }

  start(): void {
    this.#running ??= this.#run()
  }

  /** Closes the endpoint at the service; further calls wait for the first. */
  async stop(): Promise<void> {
    this.#isStopping = true
    this.#move('close')
    this.#wakeUp.set()
    await this.#running
  }

  /** Stops like `stop()`, with the endpoint left to the service: it is only away for a moment. */
  leave(): Promise<void> {
    this.#isLeaving = true
    return this.stop()
  }

  /** Whether it is open on a session, or was refused there. */
  isConcludedOn(session: Session): boolean {
    return this.#concludedOn === session
  }

  /** Resolves when the outcome of the present try is known: online, refused or waiting. */
  settled(): Promise<void> {
    return this.#settled.promise
  }

  /** Something else is wanted now: opened at once, in the place of what is open. */
  reopen(): void {
    const earlier = this.#settled
    this.#isOutdated = true
    this.#settled = createDeferred()
    // Whoever waits already gets to know what comes of this.
    void this.#settled.promise.then(earlier.resolve)
    // What was said of something else is not true of this.
    this.#status = { ...this.#status, problem: undefined }
    this.#ghostSince = undefined
    this.#resetPauses()
    this.#move(this.#open ? 'replace' : 'open')
    this.#wakeUp.set()
  }

  /** The session is another one, or one that was has ended. */
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

  /** The endpoints of a session go away with it. One that lives on serves until the next has it. */
  #leaveLost(): void {
    const session = this.#options.session()
    if (!this.#open || this.#open.session === session) return
    if (session && this.#open.session.isAlive) return
    this.#leave()
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
    } catch (error) {
      // Once the session is gone, that is the reason and not what the SDK makes of it.
      const isNews = session === this.#options.session() && !this.#isOutdated
      if (!isNews) return
      const problem = problemOf(error)
      if (problem.permanent || problem.reason === 'conflict') this.#concludedOn = session
      await this.#pause(problem)
    }
  }

  /** Opens what is wanted, and then closes what was open. */
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
      // The hosted service lets nobody take over: the name has to be free first.
      this.#leave()
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
    // During an opening the loop comes by itself; a ring would be kept and cut the pause short.
    if (this.#open !== opening) return
    this.#leave()
    this.#dropped = problem
    this.#wakeUp.set()
  }

  #leave(): void {
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
    // What was wanted before is still open: after the pause it is tried again to replace it.
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
    // The service may still count an earlier session of ours; only later it is somebody else.
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

  /** Says what is new, once: a device that is offline for a week must not fill its disk. */
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

/** What `since` counts: the tries while a tunnel is not online are one and the same outage. */
function kindOf(state: TunnelState): string {
  return state === 'online' || state === 'closing' ? state : 'down'
}
