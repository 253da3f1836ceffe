import type { Clock } from '../../base/clock.ts'
import {
  type Connector,
  type ConnectRequest,
  PoisonedError,
  type ServiceCommand,
  type Session,
} from '../connector.ts'
import type { Problem } from '../problem.ts'
import type { SessionOpenerOptions } from './session-opener.ts'

/** More than a handover takes: who has not asked for the session by then has no use for it. */
const UNCLAIMED_MS = 60_000

/** What the session is opened with: the same asked for later gets that session. */
export type AheadRequest = Pick<ConnectRequest, 'authtoken' | 'serverAddr' | 'caCert' | 'metadata'>

export interface HeadStartOptions extends Pick<SessionOpenerOptions, 'preflight'> {
  readonly connector: Connector
  readonly clock: Clock
}

/** A session that nobody has asked for yet. */
interface Ahead {
  readonly asked: AheadRequest
  readonly session: Session
  readonly missed: Missed
  owner: ConnectRequest | undefined
}

type Tell = (request: ConnectRequest) => void

/** What was told of a session: the newest of each kind, so that it cannot grow. */
class Missed {
  readonly #newest = new Map<string, Tell>()

  add(kind: string, tell: Tell): void {
    // In the order of what stands last.
    this.#newest.delete(kind)
    this.#newest.set(kind, tell)
  }

  tell(request: ConnectRequest): void {
    for (const tell of this.#newest.values()) tell(request)
  }
}

/**
 * A connector that connects once before there is an agent: a process that takes the place of another
 * one shows that it can, and only then lets that one hand anything over.
 */
export class HeadStart implements Connector {
  readonly #options: HeadStartOptions
  readonly #over = new AbortController()
  #ahead: Ahead | undefined

  constructor(options: HeadStartOptions) {
    this.#options = options
  }

  get sdkVersion(): string {
    return this.#options.connector.sdkVersion
  }

  /**
   * Connects to the first of the addresses that answers, and returns it. All of them are looked at
   * beforehand, and at the same time: on a silent one the SDK would hang for good. Throws what the
   * last one said, or the signal's reason.
   */
  async run(
    addresses: readonly (string | undefined)[],
    asked: Omit<AheadRequest, 'serverAddr'>,
    signal: AbortSignal,
  ): Promise<string | undefined> {
    const looks = addresses.map((it) => this.#options.preflight(it, signal))
    for (const look of looks) look.catch(() => {})
    let failure: unknown = new Error('no address to connect to')
    for (const [index, serverAddr] of addresses.entries()) {
      try {
        await looks[index]
        this.#ahead = await this.#open({ ...asked, serverAddr })
        void this.#endUnclaimed()
        return serverAddr
      } catch (error) {
        if (signal.aborted || error instanceof PoisonedError) throw error
        failure = error
      }
    }
    throw failure
  }

  /** The session that was connected ahead, where it is what is asked for; else another one. */
  async connect(request: ConnectRequest): Promise<Session> {
    const ahead = this.#ahead
    if (!ahead?.session.isAlive || !isSame(ahead.asked, request)) {
      return this.#options.connector.connect(request)
    }
    this.#ahead = undefined
    this.#over.abort()
    ahead.owner = request
    // Whoever asks has no session yet, and may be told of it all the same.
    ahead.missed.tell(request)
    return ahead.session
  }

  /** Closes the session that nobody has asked for. */
  async stop(): Promise<void> {
    this.#over.abort()
    const ahead = this.#ahead
    this.#ahead = undefined
    await ahead?.session.close()
  }

  async #endUnclaimed(): Promise<void> {
    const { signal } = this.#over
    await this.#options.clock.sleep(UNCLAIMED_MS, signal).catch(() => {})
    if (!signal.aborted) await this.stop()
  }

  async #open(asked: AheadRequest): Promise<Ahead> {
    const missed = new Missed()
    let ahead: Ahead | undefined
    const tell = (kind: string, it: Tell) => {
      if (ahead?.owner) it(ahead.owner)
      else missed.add(kind, it)
    }
    const session = await this.#options.connector.connect({
      ...asked,
      onLost: (problem: Problem) => tell('lost', (it) => it.onLost(problem)),
      onHeartbeat: (latencyMs) => tell('heartbeat', (it) => it.onHeartbeat(latencyMs)),
      // Each kind of its own: a stop counts, whatever is asked for after it.
      onCommand: (command: ServiceCommand) => tell(command, (it) => it.onCommand(command)),
      onDuplicate: (ip) => tell('duplicate', (it) => it.onDuplicate(ip)),
      onNotice: (text) => tell('notice', (it) => it.onNotice?.(text)),
    })
    ahead = { asked, session, missed, owner: undefined }
    return ahead
  }
}

function isSame(asked: AheadRequest, request: AheadRequest): boolean {
  return (
    asked.authtoken.reveal() === request.authtoken.reveal() &&
    asked.serverAddr === request.serverAddr &&
    asked.caCert === request.caCert &&
    asked.metadata === request.metadata
  )
}
