import type { Clock } from '../../base/clock.ts'
import type { LinkSession } from './link-session.ts'

/** More than a service that asks for new sessions again and again gets to keep. */
const MAX_RETIRED = 3

export interface RetiredSessionsOptions {
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
