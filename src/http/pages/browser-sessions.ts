import type { CookieOptions, Request, Response } from 'express'
import { AppError } from '../../base/app-error.ts'
import type { Clock } from '../../base/clock.ts'
import { createToken, hashToken, Secret } from '../../base/secret.ts'

interface SessionCookieOptions {
  readonly name: string
  /** It is sent to this path and what lies below it. */
  readonly path: string
}

/** The cookie of a page's sessions, RFC 6265: no script reads it, and no other site sends it. */
export class SessionCookie {
  readonly #name: string
  readonly #path: string
  readonly #value: RegExp

  constructor({ name, path }: SessionCookieOptions) {
    this.#name = name
    this.#path = path
    this.#value = new RegExp(`(?:^|; *)${name}=([\\w-]{43})(?:;|$)`)
  }

  /** The session id that the browser presents, or an empty text. */
  read(request: Request): string {
    return this.#value.exec(request.get('cookie') ?? '')?.[1] ?? ''
  }

  /** The browser keeps it until it is closed; the server decides when the session is over. */
  set(request: Request, response: Response, id: Secret): void {
    response.cookie(this.#name, id.reveal(), this.#optionsFor(request))
  }

  clear(request: Request, response: Response): void {
    response.clearCookie(this.#name, this.#optionsFor(request))
  }

  #optionsFor(request: Request): CookieOptions {
    // Behind a proxy that ends TLS. A client that says so without reason hurts only itself.
    const secure = request.secure || request.get('x-forwarded-proto') === 'https'
    return { httpOnly: true, sameSite: 'strict', secure, path: this.#path }
  }
}

/** Without anything done by a person, a session ends after this long. */
export const IDLE_MS = 30 * 60_000
/** Whatever is done, a session ends after this long. */
export const LIFETIME_MS = 12 * 60 * 60_000
/** Sessions at once, of one holder and of all; the one used longest ago makes room. */
export const MAX_PER_HOLDER = 8
export const MAX_SESSIONS = 200

/** How often it is tried again to end sessions for all who share the rows. */
const END_AGAIN_MS = 5_000
/** More are not remembered: the oldest go on elsewhere until they are over by themselves. */
const MOST_ENDING = 1_000

/** Somebody who is signed in to a page. */
export interface BrowserSession {
  /** Of the id, which browsers alone know. */
  readonly hash: string
  /** With what they signed in, and what speaks for them. */
  readonly holder: string
  /** Milliseconds, as the rows count them. */
  readonly openedAt: number
  readonly usedAt: number
}

/** Where sessions are kept: in the memory of this process, or where others share them. */
export interface SessionRows {
  /** How old the time of the last use may become in the rows. */
  readonly useStepMs: number
  now(): number
  find(hash: string): BrowserSession | undefined
  /** The session used longest ago first. */
  all(): readonly BrowserSession[]
  /** The following belong into `change`, which rejects with an AppError when nothing can be written. */
  insert(session: BrowserSession): void
  noteUse(hash: string, at: number): void
  delete(hash: string): void
  change(work: () => void): Promise<unknown>
}

/** Sessions that end with the process. Their times are monotonic: clocks of devices jump. */
export class MemoryRows implements SessionRows {
  readonly useStepMs = 0
  readonly #clock: Clock
  readonly #sessions = new Map<string, BrowserSession>()

  constructor(clock: Clock) {
    this.#clock = clock
  }

  now(): number {
    return this.#clock.monotonic()
  }

  find(hash: string): BrowserSession | undefined {
    return this.#sessions.get(hash)
  }

  all(): BrowserSession[] {
    return [...this.#sessions.values()]
  }

  insert(session: BrowserSession): void {
    this.#sessions.set(session.hash, session)
  }

  noteUse(hash: string, usedAt: number): void {
    const session = this.#sessions.get(hash)
    this.#sessions.delete(hash)
    if (session) this.#sessions.set(hash, { ...session, usedAt })
  }

  delete(hash: string): void {
    this.#sessions.delete(hash)
  }

  async change(work: () => void): Promise<void> {
    work()
  }
}

/** Rows that several processes share, and what this one does when they cannot be written. */
export interface SharedSessions {
  /** Aborted when nothing is tried again. */
  readonly signal: AbortSignal
  /** Told when a session has ended here, and the others do not know. */
  readonly notEnded: string
}

/**
 * The sessions of a page. Their ids are known to browsers only: here are the hashes.
 *
 * INVARIANTS, where the rows are shared
 * - A session that was closed is over for all, also where this process had not heard of it. Where the others
 *   cannot be told it is not good in this process again, and they are told as soon as that goes.
 * - Without the rows people can sign in, at this process alone, and those who have go on.
 */
export class BrowserSessions {
  readonly #clock: Clock
  readonly #rows: SessionRows
  readonly #shared: SharedSessions | undefined
  /** Sessions that shared rows could not take. */
  readonly #own: BrowserSessions | undefined
  /** By hash: uses that the others may not know of yet, and when they were. */
  readonly #uses = new Map<string, number>()
  readonly #noting = new Set<string>()
  /**
   * Hashes of those that the others may take for good still, oldest first, and whether this process has
   * seen them as sessions: anybody may close what is none.
   */
  readonly #closed = new Map<string, { readonly isSeen: boolean }>()
  #ending: Promise<void> | undefined

  constructor(clock: Clock, rows: SessionRows = new MemoryRows(clock), shared?: SharedSessions) {
    this.#clock = clock
    this.#rows = rows
    this.#shared = shared
    this.#own = shared && new BrowserSessions(clock)
  }

  /** Whether the rows are shared: closing a session that is unknown here asks for them. */
  get isShared(): boolean {
    return this.#shared !== undefined
  }

  /** Resolves with the id for the cookie; it cannot be asked for again. */
  async open(holder: string): Promise<Secret> {
    const rows = this.#rows
    const id = new Secret(createToken(''))
    const now = rows.now()
    const fresh = { hash: hashToken(id.reveal()), holder, openedAt: now, usedAt: now }
    try {
      await rows.change(() => {
        this.#makeRoom(holder)
        rows.insert(fresh)
      })
      return id
    } catch (error) {
      if (!this.#own || !(error instanceof AppError)) throw error
      return this.#own.open(holder)
    }
  }

  /** The session of a presented id, unless it is over. A use starts its idle time anew. */
  find(id: string, how: { readonly isUse: boolean }): { readonly holder: string } | undefined {
    const own = this.#own?.find(id, how)
    if (own) return own
    const hash = hashToken(id)
    const session = this.#closed.has(hash) ? undefined : this.#rows.find(hash)
    if (!session || this.#isOver(session)) {
      this.#uses.delete(hash)
      return undefined
    }
    if (how.isUse) this.#noteUse(session)
    return { holder: session.holder }
  }

  /** Rejects with an AppError when the others cannot be told: they may take it for good still. */
  async close(id: string): Promise<void> {
    if (id === '') return
    if (this.#own?.find(id, { isUse: false })) return this.#own.close(id)
    const hash = hashToken(id)
    this.#remember(hash)
    try {
      await this.#end([hash])
    } catch (error) {
      const shared = this.#shared
      if (shared) this.#ending ??= this.#endLater(shared)
      if (!shared || !(error instanceof AppError)) throw error
      const { code, serviceCode } = error
      throw new AppError(code, shared.notEnded, { serviceCode, cause: error })
    }
  }

  #remember(hash: string): void {
    const isSeen = this.#closed.get(hash)?.isSeen || this.#rows.find(hash) !== undefined
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

  /** What this process has no copy of is looked for in the rows that are shared, too. */
  async #end(hashes: readonly string[]): Promise<void> {
    await this.#rows.change(() => {
      for (const hash of hashes) this.#rows.delete(hash)
    })
    for (const hash of hashes) this.#closed.delete(hash)
  }

  async #endLater({ signal }: SharedSessions): Promise<void> {
    while (this.#closed.size > 0 && !signal.aborted) {
      await this.#clock.sleep(END_AGAIN_MS, signal).catch(() => {})
      if (!signal.aborted) await this.#end([...this.#closed.keys()]).catch(() => {})
    }
    this.#ending = undefined
  }

  /** Within a change. */
  #makeRoom(holder: string): void {
    const kept: BrowserSession[] = []
    for (const session of this.#rows.all()) {
      if (this.#isOver(session)) this.#rows.delete(session.hash)
      else kept.push(session)
    }
    const ofHolder = kept.filter((session) => session.holder === holder)
    const [oldest] = ofHolder.length >= MAX_PER_HOLDER ? ofHolder : kept
    const isFull = ofHolder.length >= MAX_PER_HOLDER || kept.length >= MAX_SESSIONS
    if (isFull && oldest) this.#rows.delete(oldest.hash)
  }

  /** Nobody waits for that, and where it cannot be written it counts here alone. */
  #noteUse({ hash, usedAt }: BrowserSession): void {
    const rows = this.#rows
    const now = rows.now()
    this.#uses.set(hash, now)
    if (Math.abs(now - usedAt) < rows.useStepMs || this.#noting.has(hash)) return
    this.#noting.add(hash)
    for (const known of this.#uses.keys()) if (!rows.find(known)) this.#uses.delete(known)
    void rows
      .change(() => rows.noteUse(hash, now))
      .catch(() => {})
      .finally(() => this.#noting.delete(hash))
  }

  #isOver({ hash, openedAt, usedAt }: BrowserSession): boolean {
    const now = this.#rows.now()
    const lastUse = Math.max(usedAt, this.#uses.get(hash) ?? 0)
    return now - lastUse >= IDLE_MS || now - openedAt >= LIFETIME_MS
  }
}
