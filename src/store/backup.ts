import { closeSync, fsyncSync, openSync, readdirSync, renameSync, rmSync, statSync } from 'node:fs'
import { basename, dirname, join } from 'node:path'
import type { Clock } from '../base/clock.ts'
import { syncFolder } from '../base/file.ts'
import type { Logger } from '../base/logger.ts'
import type { Connection } from './sqlite.ts'

const KEPT = 3
/** A backup is made when nothing changed for this long … */
const SETTLE_MS = 5_000
/** … or this long after the first change, when changes never stop coming. */
const LATEST_MS = 60_000

/** A copy of the database as it was; numbered, because the wall clock of a device may jump. */
export interface Backup {
  readonly path: string
  readonly number: number
  readonly madeAt: number
}

/** The backups beside the database at `path`, newest first. */
export function listBackups(path: string): Backup[] {
  const prefix = `${basename(path)}.backup-`
  return readdirSync(dirname(path))
    .filter((name) => name.startsWith(prefix) && /^\d+$/.test(name.slice(prefix.length)))
    .map((name) => ({ path: join(dirname(path), name), number: Number(name.slice(prefix.length)) }))
    .sort((a, b) => b.number - a.number)
    .map((backup) => ({ ...backup, madeAt: statSync(backup.path).mtimeMs }))
}

export interface BackupsOptions {
  readonly connection: Connection
  /** The database file; backups lie beside it. */
  readonly path: string
  /** Throws when the database is damaged, which must not reach the backups. */
  readonly verify: () => void
  /** Called when a backup has everything that is in the database. */
  readonly onMade: () => void
  readonly log: Logger
  readonly clock: Clock
}

/** Keeps the newest three copies of a database, made when its changes have settled. */
export class Backups {
  readonly #connection: Connection
  readonly #path: string
  readonly #verify: () => void
  readonly #onMade: () => void
  readonly #log: Logger
  readonly #clock: Clock
  readonly #stopped = new AbortController()
  #changedAt: number | undefined
  #isSettling = false

  constructor({ connection, path, verify, onMade, log, clock }: BackupsOptions) {
    this.#connection = connection
    this.#path = path
    this.#verify = verify
    this.#onMade = onMade
    this.#log = log
    this.#clock = clock
  }

  /** Says that rows changed: a backup follows. */
  changed(): void {
    this.#changedAt = this.#clock.monotonic()
    if (!this.#isSettling) void this.#settle()
  }

  /** Makes a backup now and lets go of the fourth. Throws what SQLite or the disk says. */
  make(): void {
    const backups = listBackups(this.#path)
    const number = (backups[0]?.number ?? 0) + 1
    replaceDurably(`${this.#path}.backup-${number}`, (temporary) => {
      this.#connection.prepare('VACUUM INTO ?').run(temporary)
    })
    for (const old of backups.slice(KEPT - 1)) rmSync(old.path, { force: true })
    this.#changedAt = undefined
  }

  /** What changed since the last backup goes into another now. */
  flush(): void {
    if (this.#changedAt !== undefined) this.#tryMake()
  }

  /** Ends the waiting; with `makeLast`, what changed since the last backup goes into another. */
  stop({ makeLast }: { makeLast: boolean }): void {
    this.#stopped.abort()
    if (makeLast) this.flush()
  }

  async #settle(): Promise<void> {
    this.#isSettling = true
    const latest = this.#clock.monotonic() + LATEST_MS
    const waitMs = () =>
      Math.min((this.#changedAt ?? 0) + SETTLE_MS, latest) - this.#clock.monotonic()
    try {
      while (waitMs() > 0) await this.#clock.sleep(waitMs(), this.#stopped.signal)
    } catch {
      return
    }
    this.#isSettling = false
    this.flush()
  }

  #tryMake(): void {
    try {
      this.#verify()
      this.make()
      this.#onMade()
    } catch (error) {
      this.#log.warn({ err: error }, 'backup failed')
    }
  }
}

/** Fills a private temporary file and moves it to `path`, safe against a power cut. */
function replaceDurably(path: string, fill: (temporary: string) => void): void {
  const temporary = `${path}.tmp`
  rmSync(temporary, { force: true })
  try {
    closeSync(openSync(temporary, 'wx', 0o600))
    fill(temporary)
    const file = openSync(temporary, 'r')
    try {
      fsyncSync(file)
    } finally {
      closeSync(file)
    }
    renameSync(temporary, path)
  } catch (error) {
    rmSync(temporary, { force: true })
    throw error
  }
  syncFolder(dirname(path))
}
