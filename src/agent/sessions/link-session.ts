import type { Clock } from '../../base/clock.ts'
import { abortable } from '../../base/deadline.ts'
import { Secret } from '../../base/secret.ts'
import {
  type Connector,
  PoisonedError,
  type PreflightScope,
  type ServiceCommand,
  type Session,
} from '../connector.ts'
import type { LinkEvent } from '../link-state.ts'
import { type Problem, ProblemError, problemOf } from '../problem.ts'

/** Reasons to replace or end a working session. */
export const AUTHTOKEN_CHANGED: Problem = {
  reason: 'auth',
  detail: 'the authtoken changed',
  remedy: 'No action needed. The agent connects with the new authtoken.',
  permanent: false,
}

export const RESTART_ASKED: Problem = {
  reason: 'network',
  detail: 'the gateway asked for a new session',
  remedy: 'No action needed. The agent reconnects automatically.',
  permanent: false,
}

export const UNCONFIRMED: Problem = {
  reason: 'network',
  detail: 'this gateway cannot confirm the names of the device',
  remedy: 'No action needed. The agent connects to the gateway that holds the names.',
  permanent: false,
}

/** `auth`: the account's owner decides which devices may connect, for example by revoking a credential. */
export const STOP_ASKED: Problem = {
  reason: 'auth',
  detail: 'the gateway told this device to stop',
  remedy: 'To connect again, restart the agent or change the authtoken.',
  permanent: true,
}

/** Returns the state event for a problem of the link. */
export function eventOf(problem: Problem): LinkEvent {
  if (problem === STOP_ASKED) return 'park'
  if (problem.reason === 'duplicate') return 'duplicate'
  return problem.permanent ? 'refused' : 'failed'
}

export interface SessionOpenerOptions {
  readonly connector: Connector
  /** Throws a ProblemError while a connect to the address cannot succeed. */
  readonly preflight: (
    serverAddr: string | undefined,
    signal: AbortSignal,
    scope: PreflightScope,
  ) => Promise<void>
  /**
   * The current token, or the reason why it is missing. The object changes only with the token or the reason.
   */
  readonly authtoken: () => Secret | Problem
  /** `host:port` each, in order of preference. Empty: the hosted service. */
  readonly serverAddrs: readonly string[]
  readonly caCert: string | undefined
  /** JSON text that identifies this device and process. */
  readonly metadata: () => string
  readonly clock: Clock
}

/**
 * Opens the sessions of the link: serving ones and standbys. After a session at an address, the next connect
 * there has a brief preflight: many devices return at once, and each TLS handshake delays the others. If that
 * connect fails, the whole preflight finds the reason.
 */
export class SessionOpener {
  readonly #options: SessionOpenerOptions
  /** Indices of addresses whose latest connect succeeded. Only of our gateways. */
  readonly #proven = new Set<number>()

  constructor(options: SessionOpenerOptions) {
    this.#options = options
  }

  /** Number of addresses, at least one. */
  get places(): number {
    return Math.max(1, this.#options.serverAddrs.length)
  }

  /** Returns the address, undefined for the hosted service. */
  addressOf(place: number): string | undefined {
    return this.#options.serverAddrs[place]
  }

  /** Whether the service is our gateway and not the hosted service. */
  get isOurs(): boolean {
    return this.#options.serverAddrs.length > 0
  }

  get hasAuthtoken(): boolean {
    return this.#options.authtoken() instanceof Secret
  }

  /** Returns the current token. Throws a ProblemError with the reason if it is missing. */
  requireAuthtoken(): Secret {
    const token = this.#options.authtoken()
    if (token instanceof Secret) return token
    throw new ProblemError(token)
  }

  /** Returns false if the session was opened with an earlier token. */
  isCurrent(session: LinkSession): boolean {
    return this.#options.authtoken() === session.authtoken
  }

  /** Throws ProblemError, PoisonedError, or the signal's reason. */
  async open(place: number, events: SessionEvents, signal: AbortSignal): Promise<LinkSession> {
    const { connector, preflight, caCert, metadata, clock } = this.#options
    const serverAddr = this.addressOf(place)
    const isProven = this.#proven.delete(place)
    const beganAt = clock.monotonic()
    await preflight(serverAddr, signal, isProven ? 'brief' : 'whole')
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
      onGateway: (gateway) => session.met(gateway),
    })
    try {
      session.sdk = await abortable(connecting, signal)
      if (this.isOurs) this.#proven.add(place)
      session.openedAt = clock.monotonic()
      // Estimate until the first heartbeat: TCP, TLS and authentication take about four round trips.
      session.latencyMs ??= Math.round((session.openedAt - connectingAt) / 4)
      return session
    } catch (error) {
      // A connect cannot be cancelled. If it succeeds later, its session is closed.
      if (signal.aborted) connecting.then((late) => late.close()).catch(() => {})
      else if (isProven && !isAnswer(error)) await preflight(serverAddr, signal, 'whole')
      throw error
    }
  }
}

/** Whether the service gave the reason of a failed connect, or no later connect can succeed. */
function isAnswer(error: unknown): boolean {
  return error instanceof PoisonedError || problemOf(error).serviceCode !== undefined
}

/** More than needed, even if a service keeps asking for new sessions. */
const MAX_RETIRED = 3

interface RetiredSessionsOptions {
  /** A session that the service has not ended within this time is closed. */
  readonly retireMs: number
  readonly clock: Clock
  /** Called when a session is closed. */
  readonly onClosed: () => void
}

/** Sessions that no longer serve: replaced ones until they end, and lost ones. */
export class RetiredSessions {
  readonly #options: RetiredSessionsOptions
  /** Each with the controller of its timer. */
  readonly #sessions = new Map<LinkSession, AbortController>()
  readonly #closing = new Set<Promise<void>>()

  constructor(options: RetiredSessionsOptions) {
    this.#options = options
  }

  /** Retires a replaced session. Requests in progress continue until the service ends it. */
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

  /** Closes a retired session. Returns false if the session is not retired. */
  finish(session: LinkSession): boolean {
    const ended = this.#sessions.get(session)
    if (!ended) return false
    this.#sessions.delete(session)
    ended.abort('finished')
    this.close(session)
    return true
  }

  /** Closes a session in the background, because this can take seconds. */
  close(session: LinkSession): void {
    const closing = session.sdk.close()
    this.#closing.add(closing)
    void closing.then(() => {
      this.#closing.delete(closing)
      this.#options.onClosed()
    })
  }

  /** Closes all sessions. Resolves when they are closed. */
  async stop(): Promise<void> {
    for (const session of this.#sessions.keys()) this.finish(session)
    await Promise.all(this.#closing)
  }
}

/** Events of a session, also while it is being connected. */
export interface SessionEvents {
  /** The session is lost. `session.problem` is the reason. */
  readonly onEnd: (session: LinkSession) => void
  readonly onCommand: (session: LinkSession, command: ServiceCommand) => void
  /** Another process with the same identity tried to connect, from this address. */
  readonly onDuplicate: (ip: string) => void
  /** `session.gateway` is known now. */
  readonly onGateway: () => void
}

/** A session of the link: its address, its token and its events. */
export class LinkSession {
  /** Index of the address of the service. */
  readonly place: number
  /** Compared by identity: another object is another token. */
  readonly authtoken: Secret
  readonly #events: SessionEvents
  #sdk: Session | undefined
  /** Reason for its loss. Commands of the service are not included. */
  problem: Problem | undefined
  /** Command of the service: replace the session, or end it. */
  asked: ServiceCommand | undefined
  /** Id of its gateway. Known if the gateway has another session of this agent. */
  gateway: string | undefined
  latencyMs: number | undefined
  /** Monotonic. A standby session was open before it serves. */
  openedAt = 0

  constructor(place: number, authtoken: Secret, events: SessionEvents) {
    this.place = place
    this.authtoken = authtoken
    this.#events = events
  }

  /** Available after `SessionOpener.open` has returned the session. */
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

  /** Records a command. A stop overrides other commands, because it was confirmed to the service. */
  obey(command: ServiceCommand): void {
    if (this.asked !== 'stop') this.asked = command
    this.#events.onCommand(this, command)
  }

  duplicated(ip: string): void {
    this.#events.onDuplicate(ip)
  }

  met(gateway: string): void {
    this.gateway = gateway
    this.#events.onGateway()
  }
}
