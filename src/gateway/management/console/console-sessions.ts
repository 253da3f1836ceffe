import { AppError } from '../../../base/app-error.ts'
import type { Clock } from '../../../base/clock.ts'
import { Secret } from '../../../base/secret.ts'
import { createToken, hashToken } from '../../../base/token.ts'
import {
  BrowserSessions,
  IDLE_MS,
  LIFETIME_MS,
  MAX_PER_HOLDER,
  MAX_SESSIONS,
} from '../../../http/pages/browser-sessions.ts'
import type { Database } from '../../../store/database.ts'
import type { ConsoleSession, ConsoleSessionStore } from '../../records/console-session-store.ts'

/** How old the time of the last use may become that all gateways know. */
const USE_STEP_MS = 60_000
/** How often it is tried again to end sessions at all gateways. */
const END_AGAIN_MS = 5_000
/** More are not remembered: the oldest go on elsewhere until they are over by themselves. */
const MOST_ENDING = 1_000
const NOT_ENDED =
  'The session has ended at this gateway. The other gateways are told as soon as ' +
  'PostgreSQL accepts changes again, unless this gateway stops before.'

/** Who is signed in to the console; what is answered at once is of this gateway alone. */
export interface ConsoleSessions {
  open(holder: string): Secret | Promise<Secret>
  find(id: string, how: { readonly isUse: boolean }): { readonly holder: string } | undefined
  close(id: string): void | Promise<void>
}

export interface SiteSessionsOptions {
  readonly database: Pick<Database, 'change'>
  readonly store: Pick<ConsoleSessionStore, 'find' | 'all' | 'insert' | 'noteUse' | 'delete'>
  /** Aborted when nothing is tried again. */
  readonly signal: AbortSignal
  readonly clock: Clock
}

/**
 * Sessions that are good at all gateways of a site: rows that all have in common.
 *
 * INVARIANTS
 * - One that was closed is over at all gateways, also where this one had not heard of it. Where they cannot
 *   be told it is not good in this process again, and they are told as soon as that goes.
 * - Without PostgreSQL people can sign in, at this gateway alone, and those who have go on.
 */
export class SiteSessions implements ConsoleSessions {
  readonly #options: SiteSessionsOptions
  /** Those that PostgreSQL could not take. */
  readonly #own: BrowserSessions
  /** By hash: uses that the others may not know of yet, and when they were. */
  readonly #uses = new Map<string, number>()
  readonly #noting = new Set<string>()
  /**
   * Hashes of those that the others may take for good still, oldest first, and whether this gateway has
   * seen them as sessions: anybody may close what is none.
   */
  readonly #closed = new Map<string, { readonly isSeen: boolean }>()
  #ending: Promise<void> | undefined

  constructor(options: SiteSessionsOptions) {
    this.#options = options
    this.#own = new BrowserSessions(options.clock)
  }

  async open(holder: string): Promise<Secret> {
    const { database, store, clock } = this.#options
    const id = new Secret(createToken(''))
    const now = clock.now()
    const fresh = { hash: hashToken(id.reveal()), apiKeyId: holder, openedAt: now, usedAt: now }
    try {
      await database.change(
        () => {
          this.#makeRoom(holder)
          store.insert(fresh)
        },
        { withoutBackup: true },
      )
      return id
    } catch (error) {
      if (!(error instanceof AppError)) throw error
      return this.#own.open(holder)
    }
  }

  find(id: string, { isUse }: { readonly isUse: boolean }): { holder: string } | undefined {
    const own = this.#own.find(id, { isUse })
    if (own) return own
    const hash = hashToken(id)
    const session = this.#closed.has(hash) ? undefined : this.#options.store.find(hash)
    if (!session || this.#isOver(session)) {
      this.#uses.delete(hash)
      return undefined
    }
    if (isUse) this.#noteUse(session)
    return { holder: session.apiKeyId }
  }

  /** Throws an AppError when the others cannot be told: they may take it for good still. */
  async close(id: string): Promise<void> {
    if (id === '') return
    const isOwn = this.#own.find(id, { isUse: false }) !== undefined
    this.#own.close(id)
    if (isOwn) return
    const hash = hashToken(id)
    this.#remember(hash)
    try {
      await this.#end([hash])
    } catch (error) {
      this.#ending ??= this.#endLater()
      if (!(error instanceof AppError)) throw error
      const { code, serviceCode } = error
      throw new AppError(code, NOT_ENDED, { serviceCode, cause: error })
    }
  }

  #remember(hash: string): void {
    const isSeen = this.#closed.get(hash)?.isSeen || this.#options.store.find(hash) !== undefined
    this.#closed.set(hash, { isSeen })
    if (this.#closed.size <= MOST_ENDING) return
    let [victim] = this.#closed.keys()
    for (const [closed, known] of this.#closed) {
      if (known.isSeen) continue
      victim = closed
      break
    }
    if (victim !== undefined) this.#closed.delete(victim)
  }

  /** What is not in the copy of this gateway is looked for in PostgreSQL, too. */
  async #end(hashes: readonly string[]): Promise<void> {
    const { database, store } = this.#options
    const change = () => {
      for (const hash of hashes) store.delete(hash)
    }
    await database.change(change, { withoutBackup: true })
    for (const hash of hashes) this.#closed.delete(hash)
  }

  async #endLater(): Promise<void> {
    const { clock, signal } = this.#options
    while (this.#closed.size > 0 && !signal.aborted) {
      await clock.sleep(END_AGAIN_MS, signal).catch(() => {})
      if (!signal.aborted) await this.#end([...this.#closed.keys()]).catch(() => {})
    }
    this.#ending = undefined
  }

  /** Within a change. */
  #makeRoom(holder: string): void {
    const { store } = this.#options
    const kept: ConsoleSession[] = []
    for (const session of store.all()) {
      if (this.#isOver(session)) store.delete(session.hash)
      else kept.push(session)
    }
    const ofHolder = kept.filter(({ apiKeyId }) => apiKeyId === holder)
    const [oldest] = ofHolder.length >= MAX_PER_HOLDER ? ofHolder : kept
    const isFull = ofHolder.length >= MAX_PER_HOLDER || kept.length >= MAX_SESSIONS
    if (isFull && oldest) store.delete(oldest.hash)
  }

  /** Nobody waits for that, and without PostgreSQL it counts here alone. */
  #noteUse({ hash, usedAt }: ConsoleSession): void {
    const { database, store, clock } = this.#options
    const now = clock.now()
    this.#uses.set(hash, now)
    if (Math.abs(now - usedAt) < USE_STEP_MS || this.#noting.has(hash)) return
    this.#noting.add(hash)
    this.#prune()
    void database
      .change(() => store.noteUse(hash, now), { withoutBackup: true })
      .catch(() => {})
      .finally(() => this.#noting.delete(hash))
  }

  /** What is known here alone of sessions that are gone. */
  #prune(): void {
    const { store } = this.#options
    for (const hash of this.#uses.keys()) if (!store.find(hash)) this.#uses.delete(hash)
  }

  #isOver({ hash, openedAt, usedAt }: ConsoleSession): boolean {
    const now = this.#options.clock.now()
    const lastUse = Math.max(usedAt, this.#uses.get(hash) ?? 0)
    return now - lastUse >= IDLE_MS || now - openedAt >= LIFETIME_MS
  }
}
