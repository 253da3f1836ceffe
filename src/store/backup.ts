import { closeSync, fsyncSync, openSync, readdirSync, renameSync, rmSync, statSync } from 'node:fs'
import { basename, dirname, join } from 'node:path'
import type { Clock } from '../base/clock.ts'
import { syncFolder } from '../base/file.ts'
import type { Logger } from '../base/logger.ts'
import type { Connection } from './sqlite.ts'

const KEPT = 3
/** A backup is made after this time without changes … */
const SETTLE_MS = 5_000
/** … or after this time since the first change, if changes do not stop. */
const LATEST_MS = 60_000

/** A copy of the database. Numbered, because the wall clock of a device may jump. */
export interface Backup {
  readonly path: string
  readonly number: number
  readonly madeAt: number
}

/** Returns the backups next to the database at `path`, newest first. */
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
  /** The database file. Backups are in the same folder. */
  readonly path: string
  /** Throws if the database is damaged, so that the damage does not reach the backups. */
  readonly verify: () => void
  /** Called when a backup contains the current state of the database. */
  readonly onMade: () => void
  readonly log: Logger
  readonly clock: Clock
}

/** Keeps the three newest copies of a database. A copy is made when changes have settled. */
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

  /** Reports changed rows. A backup follows. */
  changed(): void {
    this.#changedAt = this.#clock.monotonic()
    if (!this.#isSettling) void this.#settle()
  }

  /** Makes a backup now and deletes the fourth. Throws the error of SQLite or the disk. */
  make(): void {
    const backups = listBackups(this.#path)
    const number = (backups[0]?.number ?? 0) + 1
    replaceDurably(`${this.#path}.backup-${number}`, (temporary) => {
      this.#connection.prepare('VACUUM INTO ?').run(temporary)
    })
    for (const old of backups.slice(KEPT - 1)) rmSync(old.path, { force: true })
    this.#changedAt = undefined
  }

  /** Makes a backup now if there are changes since the last one. */
  flush(): void {
    if (this.#changedAt !== undefined) this.#tryMake()
  }

  /** Ends the waiting. With `makeLast`, makes a final backup if there are changes since the last one. */
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
      this.#log.warn({ err: error }, 'cannot make a backup of the database')
    }
  }
}

/** Fills a private temporary file and moves it to `path`. Safe against power cuts. */
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
