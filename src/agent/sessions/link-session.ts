import type { Clock } from '../../base/clock.ts'
import { abortable } from '../../base/deadline.ts'
import { Secret } from '../../base/secret.ts'
import type { Connector, ServiceCommand, Session } from '../connector.ts'
import type { LinkEvent } from '../link-state.ts'
import { type Problem, ProblemError } from '../problem.ts'

/** Why a session that works is replaced by another one, or ended. */
export const AUTHTOKEN_CHANGED: Problem = {
  reason: 'auth',
  detail: 'the authtoken changed',
  remedy: 'No action needed. The agent connects with the new authtoken.',
  permanent: false,
}

export const RESTART_ASKED: Problem = {
  reason: 'network',
  detail: 'the service asked for a new session',
  remedy: 'No action needed. The agent reconnects automatically.',
  permanent: false,
}

/** `auth`: the account's owner says who may be connected, as with a credential that was revoked. */
export const STOP_ASKED: Problem = {
  reason: 'auth',
  detail: 'the service told this device to stop',
  remedy: 'To connect again, restart the agent or change the authtoken.',
  permanent: true,
}

/** What a problem of the link is to its state. */
export function eventOf(problem: Problem): LinkEvent {
  if (problem === STOP_ASKED) return 'park'
  if (problem.reason === 'duplicate') return 'duplicate'
  return problem.permanent ? 'refused' : 'failed'
}

export interface SessionOpenerOptions {
  readonly connector: Connector
  /** Throws a ProblemError as long as a connect to the address could not succeed. */
  readonly preflight: (serverAddr: string | undefined, signal: AbortSignal) => Promise<void>
  /** The token to use now, or why there is none; the same object until it is another one. */
  readonly authtoken: () => Secret | Problem
  /** `host:port` each, the first one first; none is the hosted service. */
  readonly serverAddrs: readonly string[]
  readonly caCert: string | undefined
  /** JSON text that says which device this is, and which process. */
  readonly metadata: () => string
  readonly clock: Clock
}

/** Makes the sessions of the link, whatever they are for. */
export class SessionOpener {
  readonly #options: SessionOpenerOptions

  constructor(options: SessionOpenerOptions) {
    this.#options = options
  }

  /** How many addresses there are; at least one. */
  get places(): number {
    return Math.max(1, this.#options.serverAddrs.length)
  }

  /** Undefined: the hosted service. */
  addressOf(place: number): string | undefined {
    return this.#options.serverAddrs[place]
  }

  /** A gateway of ours, and not the hosted service. */
  get isOurs(): boolean {
    return this.#options.serverAddrs.length > 0
  }

  get hasAuthtoken(): boolean {
    return this.#options.authtoken() instanceof Secret
  }

  /** The token to use now. Throws a ProblemError that says why there is none. */
  requireAuthtoken(): Secret {
    const token = this.#options.authtoken()
    if (token instanceof Secret) return token
    throw new ProblemError(token)
  }

  /** False once the session was opened with an earlier token than the present one. */
  isCurrent(session: LinkSession): boolean {
    return this.#options.authtoken() === session.authtoken
  }

  /** Throws ProblemError or PoisonedError, and the signal's reason. */
  async open(place: number, events: SessionEvents, signal: AbortSignal): Promise<LinkSession> {
    const { connector, preflight, caCert, metadata, clock } = this.#options
    const serverAddr = this.addressOf(place)
    const beganAt = clock.monotonic()
    await preflight(serverAddr, signal)
    const preflightMs = clock.monotonic() - beganAt
    const session = new LinkSession(place, this.requireAuthtoken(), events)
    const connectingAt = clock.monotonic()
    const connecting = connector.connect({
      authtoken: session.authtoken,
      serverAddr,
      caCert,
      metadata: metadata(),
      preflightMs,
      onLost: (problem) => session.end(problem),
      onHeartbeat: (latencyMs) => {
        session.latencyMs = latencyMs
      },
      onCommand: (command) => session.obey(command),
      onDuplicate: (ip) => session.duplicated(ip),
    })
    try {
      session.sdk = await abortable(connecting, signal)
      // Until a heartbeat says more: TCP, TLS and authentication are about four round trips.
      session.latencyMs ??= Math.round((clock.monotonic() - connectingAt) / 4)
      return session
    } catch (error) {
      // A connect cannot be taken back: when it still succeeds, its session is put away.
      if (signal.aborted) connecting.then((late) => late.close()).catch(() => {})
      throw error
    }
  }
}

/** More than a service that asks for new sessions again and again gets to keep. */
const MAX_RETIRED = 3

interface RetiredSessionsOptions {
  /** A session that the service has not ended by then is closed. */
  readonly retireMs: number
  readonly clock: Clock
  /** One is of no use any more. */
  readonly onClosed: () => void
}

/** Sessions that serve no longer: those that others have replaced, until they have ended, and lost ones. */
export class RetiredSessions {
  readonly #options: RetiredSessionsOptions
  /** Each with what ends its time. */
  readonly #sessions = new Map<LinkSession, AbortController>()
  readonly #closing = new Set<Promise<void>>()

  constructor(options: RetiredSessionsOptions) {
    this.#options = options
  }

  /** Another session has its place. What is under way on it goes on until the service ends it. */
  retire(session: LinkSession): void {
    session.sdk.retire()
    const { clock, retireMs } = this.#options
    const ended = new AbortController()
    this.#sessions.set(session, ended)
    const [oldest] = this.#sessions.keys()
    if (this.#sessions.size > MAX_RETIRED && oldest) this.finish(oldest)
    clock.sleep(retireMs, ended.signal).then(
      () => this.finish(session),
      () => {},
    )
  }

  /** Closes a retired session; answers false when it is none. */
  finish(session: LinkSession): boolean {
    const ended = this.#sessions.get(session)
    if (!ended) return false
    this.#sessions.delete(session)
    ended.abort('finished')
    this.close(session)
    return true
  }

  /** Closes a session beside whatever comes next: that can take seconds. */
  close(session: LinkSession): void {
    const closing = session.sdk.close()
    this.#closing.add(closing)
    void closing.then(() => {
      this.#closing.delete(closing)
      this.#options.onClosed()
    })
  }

  /** Resolves when all of them are closed. */
  async stop(): Promise<void> {
    for (const session of this.#sessions.keys()) this.finish(session)
    await Promise.all(this.#closing)
  }
}

/** What becomes of a session, told to whoever has it; also while it is still being connected. */
export interface SessionEvents {
  /** It is of no use any more: `session.problem` says why. */
  readonly onEnd: (session: LinkSession) => void
  readonly onCommand: (session: LinkSession, command: ServiceCommand) => void
  /** Another process with the same identity wants to connect, from this address. */
  readonly onDuplicate: (ip: string) => void
}

/** One session of the link: where it leads, what it was opened with, and what was told of it. */
export class LinkSession {
  /** Which of the addresses of the service. */
  readonly place: number
  /** Compared by identity: another object is another token. */
  readonly authtoken: Secret
  readonly #events: SessionEvents
  #sdk: Session | undefined
  /** Why it broke; what it was told to do is not among it. */
  problem: Problem | undefined
  /** The service wants another session instead of this one, or none. */
  asked: ServiceCommand | undefined
  latencyMs: number | undefined

  constructor(place: number, authtoken: Secret, events: SessionEvents) {
    this.place = place
    this.authtoken = authtoken
    this.#events = events
  }

  /** There once `SessionOpener.open` has handed it out. */
  get sdk(): Session {
    if (!this.#sdk) throw new Error('the session is not connected yet')
    return this.#sdk
  }

  set sdk(session: Session) {
    this.#sdk = session
  }

  end(problem: Problem): void {
    if (this.problem) return
    this.problem = problem
    this.#events.onEnd(this)
  }

  /** A stop counts whatever else was asked: the service was told that it is obeyed. */
  obey(command: ServiceCommand): void {
    if (this.asked !== 'stop') this.asked = command
    this.#events.onCommand(this, command)
  }

  duplicated(ip: string): void {
    this.#events.onDuplicate(ip)
  }
}
