import type { Secret } from '../../base/secret.ts'
import type { ServiceCommand, Session } from '../connector.ts'
import type { Problem } from '../problem.ts'

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
