import type { Clock } from '../../base/clock.ts'
import { Secret } from '../../base/secret.ts'
import { createToken, hashToken } from '../../base/token.ts'

/** Without anything done by a person, a session ends after this long. */
export const IDLE_MS = 30 * 60_000
/** Whatever is done, a session ends after this long. */
export const LIFETIME_MS = 12 * 60 * 60_000
/** Sessions at once, of one holder and of all; the one used longest ago makes room. */
export const MAX_PER_HOLDER = 8
export const MAX_SESSIONS = 200

/** Somebody who is signed in to a page. */
export interface BrowserSession {
  /** With what they signed in, and what speaks for them. */
  readonly holder: string
  /** Milliseconds on the monotonic clock. */
  readonly openedAt: number
  readonly usedAt: number
}

/** The sessions of a page. Their ids are known to browsers only: here are the hashes. */
export class BrowserSessions {
  readonly #clock: Clock
  /** Hash of the id to session, the one used longest ago first. */
  readonly #sessions = new Map<string, BrowserSession>()

  constructor(clock: Clock) {
    this.#clock = clock
  }

  get size(): number {
    return this.#sessions.size
  }

  /** Answers the id for the cookie; it cannot be asked for again. */
  open(holder: string): Secret {
    this.#sweep()
    const ofHolder = [...this.#sessions].filter(([, session]) => session.holder === holder)
    const rivals = ofHolder.length >= MAX_PER_HOLDER ? ofHolder : [...this.#sessions]
    const [oldest] = rivals
    const isFull = rivals === ofHolder || rivals.length >= MAX_SESSIONS
    if (isFull && oldest) this.#sessions.delete(oldest[0])
    const id = new Secret(createToken(''))
    const now = this.#clock.monotonic()
    this.#sessions.set(hashToken(id.reveal()), { holder, openedAt: now, usedAt: now })
    return id
  }

  /** The session of a presented id, unless it is over. A use starts its idle time anew. */
  find(id: string, { isUse }: { readonly isUse: boolean }): BrowserSession | undefined {
    const hash = hashToken(id)
    const session = this.#sessions.get(hash)
    if (!session || this.#isOver(session)) {
      this.#sessions.delete(hash)
      return undefined
    }
    if (!isUse) return session
    const used = { ...session, usedAt: this.#clock.monotonic() }
    this.#sessions.delete(hash)
    this.#sessions.set(hash, used)
    return used
  }

  close(id: string): void {
    this.#sessions.delete(hashToken(id))
  }

  #sweep(): void {
    for (const [hash, session] of this.#sessions) {
      if (this.#isOver(session)) this.#sessions.delete(hash)
    }
  }

  #isOver({ openedAt, usedAt }: BrowserSession): boolean {
    const now = this.#clock.monotonic()
    return now - usedAt >= IDLE_MS || now - openedAt >= LIFETIME_MS
  }
}
