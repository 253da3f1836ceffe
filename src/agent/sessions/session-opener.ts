import type { Clock } from '../../base/clock.ts'
import { abortable } from '../../base/deadline.ts'
import { Secret } from '../../base/secret.ts'
import type { Connector } from '../connector.ts'
import { type Problem, ProblemError } from '../problem.ts'
import { LinkSession, type SessionEvents } from './link-session.ts'

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
