import { abortable } from '../base/abortable.ts'
import { AutoResetEvent } from '../base/auto-reset-event.ts'
import { Backoff } from '../base/backoff.ts'
import type { Clock } from '../base/clock.ts'
import type { Logger } from '../base/logger.ts'
import { Secret } from '../base/secret.ts'
import type { LinkStatus } from './agent-status.ts'
import { type Connector, PoisonedError, type ServiceCommand, type Session } from './connector.ts'
import { hasSession, type LinkEvent, type LinkState, nextLinkState } from './link-state.ts'
import { type Problem, ProblemError, problemOf } from './problem.ts'
import { refusalBackoff } from './refusal-backoff.ts'
import type { LinkTimings } from './timings.ts'

export interface LinkOptions {
  readonly connector: Connector
  /** Throws a ProblemError as long as a connect could not succeed. */
  readonly preflight: (signal: AbortSignal) => Promise<void>
  /** The token to use now, or why there is none; `authtokenChanged()` says that it is another. */
  readonly authtoken: () => Secret | Problem
  readonly serverAddr: string | undefined
  readonly caCert: string | undefined
  /** JSON text that says which device this is. */
  readonly metadata: () => string
  readonly timings: LinkTimings
  readonly random?: () => number
  readonly clock: Clock
  readonly log: Logger
  /** Called after every change of the status. */
  readonly onChange: () => void
  /** The SDK hangs for good; the link stays down until the process is a new one. */
  readonly onPoisoned: () => void
}

const AUTHTOKEN_CHANGED: Problem = {
  reason: 'auth',
  detail: 'the authtoken changed',
  remedy: 'Nothing to do: the agent connects with the new one.',
  permanent: false,
}

const RESTART_ASKED: Problem = {
  reason: 'network',
  detail: 'the service asked for a new session',
  remedy: 'Nothing to do: the agent connects again by itself.',
  permanent: false,
}

/** `auth`: the account's owner says who may be connected, as with a credential that was revoked. */
const STOP_ASKED: Problem = {
  reason: 'auth',
  detail: 'the service asked this device to stop',
  remedy: 'Restart the agent, or give it another authtoken, to connect again.',
  permanent: true,
}

/**
 * Keeps one SDK session up: connect, hold, pause, again. A lost session is never revived.
 *
 * INVARIANTS
 * - `#run` alone connects, holds and closes sessions. The public methods note what happened, and wake
 *   it where it has to act; none but `stop()` waits for the SDK.
 * - No session is opened while an earlier one still works: that one holds its domains. A lost one is
 *   closed beside the next, because its close can take seconds.
 * - The state changes in `#move` alone, by the table of link-state.ts. `onChange` is called there, in
 *   the middle of a step: it must not wait for the link.
 * - What a session says of its end, or is told to do, reaches its own SessionLifecycle; an earlier
 *   one can neither end nor park the present one.
 * - `authtoken()` gives the same object until the token is another one. It is compared by identity:
 *   with a copy each time, every session would end right after its connect.
 */
export class Link {
  readonly #options: LinkOptions
  readonly #log: Logger
  readonly #backoff: Backoff
  readonly #refusals: Backoff
  readonly #stopping = new AbortController()
  readonly #wakeUp = new AutoResetEvent()
  /** Lost sessions that are still being put away. */
  readonly #closing = new Set<Promise<void>>()
  #running: Promise<void> | undefined
  #state: LinkState = 'waiting'
  #since: number
  /** `#since` on the monotonic clock: how long it has been must not change when the clock is set. */
  #changedAt: number
  #problem: Problem | undefined
  /** Not of one session: it stays until a probe comes through. */
  #distrust: Problem | undefined
  #nextRetryAt: number | undefined
  #latencyMs: number | undefined
  /** The pause that the last failure asks for; undefined: until woken. */
  #delayMs: number | undefined
  #current: { readonly lifecycle: SessionLifecycle; readonly session: Session } | undefined
  /** Of the newest session, also after that has ended; undefined again with a new authtoken. */
  #newest: SessionLifecycle | undefined

  constructor(options: LinkOptions) {
    this.#options = options
    this.#log = options.log
    const { backoffBaseMs, backoffCapMs, refusal } = options.timings
    const random = options.random && { random: options.random }
    this.#backoff = new Backoff({ baseMs: backoffBaseMs, capMs: backoffCapMs, ...random })
    this.#refusals = refusalBackoff(refusal, random)
    this.#since = options.clock.now()
    this.#changedAt = options.clock.monotonic()
  }

  /** The session to open endpoints on, while there is one. */
  get session(): Session | undefined {
    return hasSession(this.#state) ? this.#current?.session : undefined
  }

  /** `since` is when the link came up or went down; attempts in between do not count. */
  get status(): LinkStatus {
    const problem = this.#state === 'suspect' ? this.#distrust : this.#problem
    return {
      state: this.#state,
      since: this.#since,
      forMs: this.#options.clock.monotonic() - this.#changedAt,
      nextRetryAt: this.#nextRetryAt,
      latencyMs: this.session && this.#latencyMs,
      ...(problem && {
        reason: problem.reason,
        serviceCode: problem.serviceCode,
        remedy: problem.remedy,
        lastError: problem.detail,
      }),
    }
  }

  start(): void {
    this.#running ??= this.#run(this.#stopping.signal)
  }

  async stop(): Promise<void> {
    this.#stopping.abort(new Error('the link is stopping'))
    this.#current?.lifecycle.changed.set()
    this.#wakeUp.set()
    await this.#running
    await Promise.all(this.#closing)
    this.#move('stop')
  }

  /** Gives the session up although it looks alive, and connects again. */
  rebuild(problem: Problem): void {
    this.#current?.lifecycle.end(problem, false)
  }

  /** Connects with the new token at once, whatever the link is waiting for. */
  authtokenChanged(): void {
    this.#newest = undefined
    this.rebuild(AUTHTOKEN_CHANGED)
    this.#resetPauses()
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
    while (!signal.aborted) {
      try {
        await this.#connect(signal)
        await this.#hold(signal)
      } catch (error) {
        if (signal.aborted) return
        this.#fail(problemOf(error))
        if (error instanceof PoisonedError) return this.#giveUp()
      }
      await this.#pause(signal)
    }
  }

  async #connect(signal: AbortSignal): Promise<void> {
    const { connector, preflight, authtoken, serverAddr, caCert, metadata } = this.#options
    if (this.#newest?.isStopped) throw new ProblemError(STOP_ASKED)
    const token = authtoken()
    if (!(token instanceof Secret)) throw new ProblemError(token)
    this.#move('connect')
    await preflight(signal)
    const lifecycle = new SessionLifecycle()
    this.#newest = lifecycle
    const connecting = connector.connect({
      authtoken: token,
      serverAddr,
      caCert,
      metadata: metadata(),
      onLost: (problem) => lifecycle.end(problem, true),
      onHeartbeat: (latencyMs) => {
        this.#latencyMs = latencyMs
      },
      onCommand: (command) => lifecycle.obey(command),
    })
    try {
      this.#current = { lifecycle, session: await abortable(connecting, signal) }
      if (authtoken() !== token) lifecycle.end(AUTHTOKEN_CHANGED, false)
    } catch (error) {
      // A connect cannot be taken back: when it still succeeds, its session is put away.
      if (signal.aborted) connecting.then((session) => session.close()).catch(() => {})
      throw error
    }
  }

  /** Returns when the session has ended or the agent stops. */
  async #hold(signal: AbortSignal): Promise<void> {
    if (!this.#current) return
    const { lifecycle, session } = this.#current
    const { clock, timings } = this.#options
    const upAt = clock.monotonic()
    this.#problem = undefined
    this.#move('connected')
    if (this.#distrust) this.#move('distrust')
    while (!lifecycle.problem && !signal.aborted) await lifecycle.changed.wait()
    this.#current = undefined
    const upMs = clock.monotonic() - upAt
    if (upMs >= timings.stableMs) this.#resetPauses()
    const isQuick = lifecycle.isDead && upMs >= timings.quickAfterMs
    if (lifecycle.problem) this.#fail(lifecycle.problem, isQuick)
    const closing = session.close()
    this.#closing.add(closing)
    void closing.then(() => this.#closing.delete(closing))
    // A session that works holds its domains: the next one would be told that they are taken.
    if (!lifecycle.isDead) await closing
  }

  #giveUp(): void {
    this.#nextRetryAt = undefined
    this.#options.onPoisoned()
  }

  /** `isQuick`: the link was up a moment ago, and who serves it may be back already. */
  #fail(problem: Problem, isQuick = false): void {
    const isNews = this.#problem?.detail !== problem.detail
    this.#problem = problem
    const delayMs = isQuick ? this.#quickMs() : this.#delayAfter(problem)
    this.#nextRetryAt = delayMs === undefined ? undefined : this.#options.clock.now() + delayMs
    this.#delayMs = delayMs
    const { detail, reason, serviceCode } = problem
    this.#log[isNews ? 'warn' : 'debug']({ reason, detail, serviceCode, delayMs }, 'link down')
    this.#move(eventOf(problem))
  }

  /** Undefined: no use in trying before something changes. */
  #delayAfter(problem: Problem): number | undefined {
    if (problem === this.#options.authtoken() || problem === STOP_ASKED) return undefined
    return (problem.permanent ? this.#refusals : this.#backoff).next()
  }

  #quickMs(): number {
    const { random = Math.random, timings } = this.#options
    return Math.ceil(timings.quickMs * (1 - random()))
  }

  #resetPauses(): void {
    this.#backoff.reset()
    this.#refusals.reset()
  }

  async #pause(signal: AbortSignal): Promise<void> {
    if (!signal.aborted) await this.#wakeUp.wait(this.#options.clock, this.#delayMs)
    this.#nextRetryAt = undefined
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

function eventOf(problem: Problem): LinkEvent {
  if (problem === STOP_ASKED) return 'park'
  return problem.permanent ? 'refused' : 'failed'
}

/** What `since` counts: the tries while the link is down are one and the same outage. */
function kindOf(state: LinkState): string {
  return state === 'connecting' || state === 'waiting' || state === 'refused' ? 'down' : state
}

/** Whether one session still serves, as its callbacks tell it. */
class SessionLifecycle {
  readonly changed = new AutoResetEvent()
  /** Why the session ended. */
  problem: Problem | undefined
  /** False when the session was given up by us and still answers. */
  isDead = false
  /** The service wants no session after this one. */
  isStopped = false

  /** A stop counts whatever else ended the session: the service was told that it is obeyed. */
  obey(command: ServiceCommand): void {
    this.isStopped ||= command === 'stop'
    this.end(command === 'stop' ? STOP_ASKED : RESTART_ASKED, false)
  }

  end(problem: Problem, isDead: boolean): void {
    this.problem ??= problem
    this.isDead ||= isDead
    this.changed.set()
  }
}
