import type { CookieOptions, Request, Response } from 'express'
import { AppError } from '../../base/app-error.ts'
import type { Clock } from '../../base/clock.ts'
import { createToken, hashToken, Secret } from '../../base/secret.ts'

interface SessionCookieOptions {
  readonly name: string
  /** The cookie is sent to this path and the paths below it. */
  readonly path: string
}

/** Session cookie of a page (RFC 6265). Scripts cannot read it, and other sites cannot send it. */
export class SessionCookie {
  readonly #name: string
  readonly #path: string
  readonly #value: RegExp

  constructor({ name, path }: SessionCookieOptions) {
    this.#name = name
    this.#path = path
    this.#value = new RegExp(`(?:^|; *)${name}=([\\w-]{43})(?:;|$)`)
  }

  /** Returns the session id sent by the browser, or an empty string. */
  read(request: Request): string {
    return this.#value.exec(request.get('cookie') ?? '')?.[1] ?? ''
  }

  /** Sets the cookie. The browser keeps it until it is closed. The server decides when the session ends. */
  set(request: Request, response: Response, id: Secret): void {
    response.cookie(this.#name, id.reveal(), this.#optionsFor(request))
  }

  clear(request: Request, response: Response): void {
    response.clearCookie(this.#name, this.#optionsFor(request))
  }

  #optionsFor(request: Request): CookieOptions {
    // Behind a proxy that terminates TLS. A client that sends a false header harms only itself.
    const secure = request.secure || request.get('x-forwarded-proto') === 'https'
    return { httpOnly: true, sameSite: 'strict', secure, path: this.#path }
  }
}

/** A session ends after this time without activity of the user. */
export const IDLE_MS = 30 * 60_000
/** Maximum lifetime of a session. */
export const LIFETIME_MS = 12 * 60 * 60_000
/** Maximum number of sessions, per holder and in total. The least recently used one is removed. */
export const MAX_PER_HOLDER = 8
export const MAX_SESSIONS = 200

/** Interval for retries to end sessions in the shared rows. */
const END_AGAIN_MS = 5_000
/**
 * Maximum number of pending session ends. The oldest are dropped: they stay valid in other processes until
 * they expire.
 */
const MAX_ENDING = 1_000

/** A signed-in user of a page. */
export interface BrowserSession {
  /** Hash of the id. Only the browser knows the id. */
  readonly hash: string
  /** Credential used to sign in, for which the session acts. */
  readonly holder: string
  /** Milliseconds, on the clock of the rows. */
  readonly openedAt: number
  readonly usedAt: number
}

/** Storage of sessions: the memory of this process, or rows shared with other processes. */
export interface SessionRows {
  /** Maximum age of the stored time of last use. */
  readonly useStepMs: number
  now(): number
  find(hash: string): BrowserSession | undefined
  /** The least recently used session first. */
  all(): readonly BrowserSession[]
  /** Call the following methods within `change`. It rejects with an AppError if nothing can be written. */
  insert(session: BrowserSession): void
  noteUse(hash: string, at: number): void
  delete(hash: string): void
  change(work: () => void): Promise<unknown>
}

/** Sessions that end with the process. Times are monotonic, because clocks of devices jump. */
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

/** Behavior for rows that several processes share, when they cannot be written. */
export interface SharedSessions {
  /** Aborted when no more retries are wanted. */
  readonly signal: AbortSignal
  /** Error text if a session ended here but the other processes could not be told. */
  readonly notEnded: string
}

/**
 * Sessions of a page. Only browsers know the session ids. Here are their hashes.
 *
 * INVARIANTS for shared rows
 * - A closed session ends in all processes, even if this process did not know it. If the rows cannot be
 *   written, it ends in this process at once. The end is written as soon as possible.
 * - If the rows cannot be written, people can still sign in, but only at this process. Existing sessions
 *   continue.
 */
export class BrowserSessions {
  readonly #clock: Clock
  readonly #rows: SessionRows
  readonly #shared: SharedSessions | undefined
  /** Sessions that could not be written to the shared rows. */
  readonly #own: BrowserSessions | undefined
  /** Times of last use that may not be in the rows yet, by hash. */
  readonly #uses = new Map<string, number>()
  readonly #noting = new Set<string>()
  /**
   * Hashes of closed sessions that other processes may still accept, oldest first. `isSeen`: this process has
   * seen the session. Unseen ones may be invented, because anyone can send a close request with any id.
   */
  readonly #closed = new Map<string, { readonly isSeen: boolean }>()
  #ending: Promise<void> | undefined

  constructor(clock: Clock, rows: SessionRows = new MemoryRows(clock), shared?: SharedSessions) {
    this.#clock = clock
    this.#rows = rows
    this.#shared = shared
    this.#own = shared && new BrowserSessions(clock)
  }

  /** Whether the rows are shared. If so, closing a session that is unknown here needs a write to them. */
  get isShared(): boolean {
    return this.#shared !== undefined
  }

  /** Resolves with the id for the cookie. The id is not stored. */
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

  /** Returns the session for an id unless it has ended. A use restarts its idle time. */
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

  /** Rejects with an AppError if the other processes cannot be told. They may still accept the session. */
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
    if (this.#closed.size <= MAX_ENDING) return
    let [victim] = this.#closed.keys()
    for (const [closed, known] of this.#closed) {
      if (known.isSeen) continue
      victim = closed
      break
    }
    if (victim !== undefined) this.#closed.delete(victim)
  }

  /** Deletes sessions in the rows, including shared sessions that this process has no copy of. */
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

  /** Removes ended sessions, and the oldest one if a limit is reached. Call it within a change. */
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

  /** Records the use in the background. If the write fails, the use counts only in this process. */
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
