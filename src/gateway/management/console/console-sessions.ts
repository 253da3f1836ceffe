import type { Clock } from '../../../base/clock.ts'
import { Secret } from '../../../base/secret.ts'
import { createToken, hashToken } from '../../../base/token.ts'

/** Without anything done by a person, a session ends after this long. */
export const IDLE_MS = 30 * 60_000
/** Whatever is done, a session ends after this long. */
export const LIFETIME_MS = 12 * 60 * 60_000
/** Sessions at once, of one API key and of all; the one used longest ago makes room. */
export const MAX_PER_KEY = 8
export const MAX_SESSIONS = 200

/** Somebody who is signed in to the console, and whose API key speaks for them. */
export interface ConsoleSession {
  readonly keyId: string
  /** Milliseconds on the monotonic clock. */
  readonly openedAt: number
  readonly usedAt: number
}

/** The sessions of the console. Their ids are known to browsers only: here are the hashes. */
export class ConsoleSessions {
  readonly #clock: Clock
  /** Hash of the id to session, the one used longest ago first. */
  readonly #sessions = new Map<string, ConsoleSession>()

  constructor(clock: Clock) {
    this.#clock = clock
  }

  get size(): number {
    return this.#sessions.size
  }

  /** Answers the id for the cookie; it cannot be asked for again. */
  open(keyId: string): Secret {
    this.#sweep()
    const ofKey = [...this.#sessions].filter(([, session]) => session.keyId === keyId)
    const rivals = ofKey.length >= MAX_PER_KEY ? ofKey : [...this.#sessions]
    const [oldest] = rivals
    const isFull = rivals === ofKey || rivals.length >= MAX_SESSIONS
    if (isFull && oldest) this.#sessions.delete(oldest[0])
    const id = new Secret(createToken(''))
    const now = this.#clock.monotonic()
    this.#sessions.set(hashToken(id.reveal()), { keyId, openedAt: now, usedAt: now })
    return id
  }

  /** The session of a presented id, unless it is over. A use starts its idle time anew. */
  find(id: string, { isUse }: { readonly isUse: boolean }): ConsoleSession | undefined {
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

  #isOver({ openedAt, usedAt }: ConsoleSession): boolean {
    const now = this.#clock.monotonic()
    return now - usedAt >= IDLE_MS || now - openedAt >= LIFETIME_MS
  }
}
