import { AutoResetEvent } from '../base/auto-reset-event.ts'
import { Backoff } from '../base/backoff.ts'
import type { Clock } from '../base/clock.ts'
import { createDeferred, type Deferred } from '../base/deferred.ts'
import type { Logger } from '../base/logger.ts'
import type { EndpointRequest, Listener, Session } from './connector.ts'
import { type Problem, problemOf } from './problem.ts'
import { refusalBackoff } from './refusal-backoff.ts'
import type { TunnelTimings } from './timings.ts'
import { nextTunnelState, type TunnelEvent, type TunnelState } from './tunnel-state.ts'

/** What is to be open; `onDropped` is the supervisor's own. */
export type WantedEndpoint = Omit<EndpointRequest, 'onDropped'>

export interface TunnelSupervisorOptions {
  /** The session to open on; `linkChanged()` says that it is another one or gone. */
  readonly session: () => Session | undefined
  /** Asked before each opening. Throws a ProblemError when it must not be opened. */
  readonly wanted: () => Promise<WantedEndpoint>
  readonly timings: TunnelTimings
  readonly random?: () => number
  readonly clock: Clock
  readonly log: Logger
  /** Called after every change of the status. */
  readonly onChange: () => void
}

/** Own view of one tunnel. Without a problem it waits for the link. */
export interface SupervisedStatus {
  readonly state: TunnelState
  /** When it came online or ceased to be; tries in between do not count. */
  readonly since: number
  readonly problem: Problem | undefined
  readonly nextRetryAt: number | undefined
}

interface OpenEndpoint {
  readonly session: Session
  readonly listener: Listener
}

/**
 * The whole life of one tunnel: a loop that compares what is wanted with what is open and closes
 * the gap, until it is stopped. Everything that happens outside only wakes it.
 *
 * INVARIANTS
 * - `#run` alone opens and closes, one thing after the other: a session has one endpoint of it at
 *   most. The public methods set a field and wake it; none but `stop()` waits for the service.
 * - Each turn of the loop decides anew, by `session()` and the fields, so it does not matter how
 *   often, or for what, it was woken.
 * - `#open` belongs to the session that it was opened on. With another session it is let go of and
 *   not closed: it went away with its own.
 * - The state changes in `#move` alone, by the table of tunnel-state.ts. In every state but `opening`
 *   `#settled` is resolved, so nobody waits for a supervisor that pauses or has stopped.
 * - `#isOutdated` is cleared before `wanted()` is asked: what changes later makes another turn.
 */
export class TunnelSupervisor {
  readonly #options: TunnelSupervisorOptions
  readonly #backoff: Backoff
  readonly #refusals: Backoff
  readonly #wakeUp = new AutoResetEvent()
  #running: Promise<void> | undefined
  #isStopping = false
  /** What is open is not what is wanted any more. */
  #isOutdated = false
  #open: OpenEndpoint | undefined
  /** Why the service closed the endpoint; it may do so before the SDK has said that it is open. */
  #dropped: Problem | undefined
  #settled: Deferred<void> = createDeferred()
  #url: string | undefined
  /** Monotonic; an endpoint that stayed open for long starts again from the shortest pause. */
  #openedAt = 0
  /** Since when, monotonic, the service says that the domain is online elsewhere. */
  #ghostSince: number | undefined
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

  /** Resolves when the outcome of the present try is known: online, refused or waiting. */
  settled(): Promise<void> {
    return this.#settled.promise
  }

  /** Closes and opens again, at once: something else is wanted now. */
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
    this.#move('open')
    this.#wakeUp.set()
  }

  /** The session is another one, or gone. */
  linkChanged(): void {
    this.#wakeUp.set()
  }

  async #run(): Promise<void> {
    while (!this.#isStopping) {
      await this.#closeOutdated()
      const session = this.#options.session()
      if (this.#dropped) await this.#pause(this.#dropped)
      else if (this.#open) await this.#wakeUp.wait()
      else if (session) await this.#tryOpen(session)
      else await this.#waitForLink()
    }
    await this.#open?.listener.close()
  }

  async #closeOutdated(): Promise<void> {
    const open = this.#open
    if (!open) return
    const isGone = open.session !== this.#options.session()
    if (!isGone && !this.#isOutdated) return
    this.#leave()
    // The endpoints of an earlier session went away with it.
    if (isGone) this.#move('failed')
    else await open.listener.close()
  }

  async #tryOpen(session: Session): Promise<void> {
    const { clock, wanted } = this.#options
    this.#move('open')
    this.#isOutdated = false
    try {
      const endpoint = await wanted()
      const onDropped = (problem: Problem) => this.#drop(problem)
      const listener = await session.open({ ...endpoint, onDropped })
      this.#openedAt = clock.monotonic()
      if (this.#dropped) return
      this.#open = { session, listener }
      this.#url = listener.url
      this.#ghostSince = undefined
      if (!this.#isOutdated) this.#move('opened')
    } catch (error) {
      // Once the session is gone, that is the reason and not what the SDK makes of it.
      const isNews = session === this.#options.session() && !this.#isOutdated
      if (isNews) await this.#pause(problemOf(error))
    }
  }

  async #waitForLink(): Promise<void> {
    this.#move('failed')
    await this.#wakeUp.wait()
  }

  #drop(problem: Problem): void {
    const isAwaited = this.#open !== undefined
    this.#leave()
    this.#dropped = problem
    // During an opening the loop comes by itself; a ring would be kept and cut the pause short.
    if (isAwaited) this.#wakeUp.set()
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
    const { clock } = this.#options
    const { event, delayMs } = this.#judge(problem)
    this.#dropped = undefined
    this.#move(event, problem, Math.ceil(clock.now() + delayMs))
    await this.#wakeUp.wait(clock, delayMs)
  }

  #judge(problem: Problem): { event: TunnelEvent; delayMs: number } {
    const { clock, random = Math.random, timings } = this.#options
    if (problem.permanent) return { event: 'refused', delayMs: this.#refusals.next() }
    if (problem.reason !== 'conflict') return { event: 'failed', delayMs: this.#backoff.next() }
    // The service may still count an earlier session of ours; only later it is somebody else.
    this.#ghostSince ??= clock.monotonic()
    const isGhost = clock.monotonic() - this.#ghostSince < timings.ghostMs
    return isGhost
      ? { event: 'failed', delayMs: timings.ghostRetryMs * (0.5 + random() / 2) }
      : { event: 'refused', delayMs: timings.conflictRetryMs * (1 + random()) }
  }

  #move(event: TunnelEvent, problem?: Problem, nextRetryAt?: number): void {
    const before = this.#status
    const state = nextTunnelState(before.state, event)
    const { clock, onChange } = this.#options
    this.#status = {
      state,
      since: kindOf(state) === kindOf(before.state) ? before.since : clock.now(),
      problem: state === 'opening' ? before.problem : problem,
      nextRetryAt,
    }
    if (state !== 'opening') this.#settled.resolve()
    this.#report(before)
    onChange()
  }

  /** Says what is new, once: a device that is offline for a week must not fill its disk. */
  #report(before: SupervisedStatus): void {
    const { log } = this.#options
    const { state, problem } = this.#status
    if (state === 'online') log.info({ url: this.#url }, 'tunnel online')
    if (!problem || state === 'opening') return
    const { reason, detail, serviceCode } = problem
    const level = detail === before.problem?.detail ? 'debug' : 'warn'
    log[level]({ reason, detail, serviceCode }, `tunnel ${state}`)
  }
}

/** What `since` counts: the tries while a tunnel is not online are one and the same outage. */
function kindOf(state: TunnelState): string {
  return state === 'online' || state === 'closing' ? state : 'down'
}
