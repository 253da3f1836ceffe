import type { Clock } from '../../base/clock.ts'
import { Semaphore } from '../../base/semaphore.ts'
import type { ClientCredentials, IdentityProvider, SignedIn } from './identity-provider.ts'
import { LoginError } from './login-error.ts'
import type { LoginSession } from './session.ts'

/** Visitors for whom the provider is asked at once, and those that may wait for it. */
const MAX_ASKING = 16
const MAX_WAITING = 64
/** How long the answer for a session serves for requests that were sent with its old cookie. */
const RENEWED_MS = 60_000
const MAX_RENEWED = 1_000

interface Renewal {
  readonly at: number
  readonly result: Promise<SignedIn | undefined>
}

/** What a log-in keeps in memory, for as long as its action does not change. All of it is bounded. */
export class LoginDesk {
  readonly provider: IdentityProvider
  readonly #clock: Clock
  readonly #asking = new Semaphore(MAX_ASKING)
  /** By session and the age of its cookie: a page sends many requests at once, and a refresh token is good for one use. */
  readonly #renewals = new Map<string, Renewal>()

  constructor(provider: IdentityProvider, clock: Clock) {
    this.provider = provider
    this.#clock = clock
  }

  /** Asks the provider when it is the visitor's turn. Throws LoginError where too many wait. */
  async ask<T>(work: () => Promise<T>): Promise<T> {
    if (this.#asking.pending >= MAX_ASKING + MAX_WAITING) throw new LoginError('busy')
    return this.#asking.run(work)
  }

  /** The same visitor as the provider knows them now; undefined when it does not any more. */
  renew(client: ClientCredentials, session: LoginSession): Promise<SignedIn | undefined> {
    const now = this.#clock.monotonic()
    const key = `${session.id} ${session.refreshedAt}`
    const known = this.#renewals.get(key)
    if (known && now - known.at < RENEWED_MS) return known.result
    const result = this.ask(() => this.provider.renew(client, session))
    this.#renewals.delete(key)
    this.#renewals.set(key, { at: now, result })
    // The next request is the next try.
    result.catch(() => this.#renewals.delete(key))
    const [oldest = ''] = this.#renewals.keys()
    if (this.#renewals.size > MAX_RENEWED) this.#renewals.delete(oldest)
    return result
  }
}
