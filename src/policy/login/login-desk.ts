import type { Clock } from '../../base/clock.ts'
import { networkOf } from '../../base/net/network.ts'
import { Semaphore } from '../../base/semaphore.ts'
import type { ClientCredentials, IdentityProvider, SignedIn } from './identity-provider.ts'
import { LoginError } from './login-error.ts'
import type { LoginSession } from './session.ts'

/** Limits of simultaneous and waiting requests to the provider. */
const MAX_ASKING = 16
const MAX_WAITING = 64
/** Limit of sign-ins from one address: starting a sign-in is free, and its code may be forged. */
const MAX_OF_ADDRESS = 16
/** How long the answer for a session serves for requests that were sent with its old cookie. */
const RENEWED_MS = 60_000
const MAX_RENEWED = 1_000

interface Renewal {
  readonly at: number
  readonly result: Promise<SignedIn | undefined>
}

/** Memory of a sign-in action while its definition stays the same. All of it is bounded. */
export class LoginDesk {
  readonly provider: IdentityProvider
  readonly #clock: Clock
  /** Separate, so that signed-in visitors are renewed even if many visitors sign in. */
  readonly #redeeming = new Semaphore(MAX_ASKING)
  readonly #renewing = new Semaphore(MAX_ASKING)
  /** Visitors that redeem a code, by address. */
  readonly #signingIn = new Map<string, number>()
  /** By session and the age of its cookie: a page sends many requests at once, and a refresh token is good for one use. */
  readonly #renewals = new Map<string, Renewal>()

  constructor(provider: IdentityProvider, clock: Clock) {
    this.provider = provider
    this.#clock = clock
  }

  /** Asks the provider when it is the visitor's turn. Throws LoginError where too many wait. */
  async redeem<T>(clientIp: string, work: () => Promise<T>): Promise<T> {
    const network = networkOf(clientIp)
    const ofAddress = this.#signingIn.get(network) ?? 0
    if (ofAddress >= MAX_OF_ADDRESS) throw new LoginError('busy')
    requireRoom(this.#redeeming)
    this.#signingIn.set(network, ofAddress + 1)
    try {
      return await this.#redeeming.run(work)
    } finally {
      const left = (this.#signingIn.get(network) ?? 1) - 1
      if (left > 0) this.#signingIn.set(network, left)
      else this.#signingIn.delete(network)
    }
  }

  /** The visitor's current data; undefined if the provider no longer knows the visitor. */
  renew(client: ClientCredentials, session: LoginSession): Promise<SignedIn | undefined> {
    const now = this.#clock.monotonic()
    const key = `${session.id} ${session.refreshedAt}`
    const known = this.#renewals.get(key)
    if (known && now - known.at < RENEWED_MS) return known.result
    const result = this.#renew(client, session)
    this.#renewals.delete(key)
    this.#renewals.set(key, { at: now, result })
    // The next request is the next try.
    result.catch(() => this.#renewals.delete(key))
    const [oldest = ''] = this.#renewals.keys()
    if (this.#renewals.size > MAX_RENEWED) this.#renewals.delete(oldest)
    return result
  }

  async #renew(client: ClientCredentials, session: LoginSession): Promise<SignedIn | undefined> {
    requireRoom(this.#renewing)
    return this.#renewing.run(() => this.provider.renew(client, session))
  }
}

function requireRoom({ pending }: Semaphore): void {
  if (pending >= MAX_ASKING + MAX_WAITING) throw new LoginError('busy')
}
