import { statSync } from 'node:fs'
import type { Clock } from '../base/clock.ts'
import type { Logger } from '../base/logger.ts'
import { type Backups, listBackups } from './backup.ts'
import { type Healing, listPutAside } from './heal.ts'
import type { ReserveFile } from './reserve-file.ts'
import type { Connection, Statement } from './sqlite.ts'
import { describeFault, faultOf, refusalOf, toStorageError } from './storage-error.ts'
import { type StorageFault, StorageState } from './storage-state.ts'

export interface FileDatabaseOptions {
  readonly connection: Connection
  readonly path: string
  readonly healing: Healing | undefined
  readonly reserve: ReserveFile
  readonly backups: Backups
  readonly onDamage: () => void
  readonly log: Logger
  readonly clock: Clock
}

export interface WriteOptions {
  /** For changes that free space: a full disk gives them the reserve, and runs `change` again. */
  readonly mayUseReserve?: boolean
  /** For what may be lost with the file, such as times of use: no backup is made for it. */
  readonly withoutBackup?: boolean
}

/** What people are shown about the storage. Times are milliseconds since the epoch. */
export interface StorageReport {
  /** Why changes are refused; undefined while they are taken. */
  readonly fault: StorageFault | undefined
  /** The same as a sentence that says what to do. */
  readonly problem: string | undefined
  /** Set when the database was damaged at this start. */
  readonly healing: Healing | undefined
  readonly lastBackupAt: number | undefined
  /** Names of damaged databases that wait for somebody to look at them. */
  readonly putAside: readonly string[]
}

/** A database on disk, with its backups and its reserve. */
export class FileDatabase {
  readonly #connection: Connection
  readonly #path: string
  readonly #healing: Healing | undefined
  readonly #reserve: ReserveFile
  readonly #onDamage: () => void
  readonly #backups: Backups
  readonly #state: StorageState
  readonly #fileMark: string | undefined
  readonly #listeners: (() => void)[] = []

  constructor({ log, clock, ...options }: FileDatabaseOptions) {
    this.#connection = options.connection
    this.#path = options.path
    this.#healing = options.healing
    this.#reserve = options.reserve
    this.#backups = options.backups
    this.#onDamage = options.onDamage
    this.#fileMark = markOf(options.path)
    this.#state = new StorageState({ log, clock, isOver: (fault) => this.#isOver(fault) })
  }

  /** Puts the reserve by; a disk without room for it counts as full. */
  start(): void {
    if (!this.#reserve.make()) this.#state.fail('full')
    if (listBackups(this.#path).length === 0) this.#backups.changed()
  }

  prepare<Parameters extends unknown[], Row = unknown>(sql: string): Statement<Parameters, Row> {
    return this.#connection.prepare(sql) as Statement<Parameters, Row>
  }

  onWrite(listener: () => void): void {
    this.#listeners.push(listener)
  }

  write<T>(
    change: () => T,
    { mayUseReserve = false, withoutBackup = false }: WriteOptions = {},
  ): T {
    if (this.#connection.inTransaction) return change()
    this.#requireFile()
    try {
      const result = mayUseReserve ? this.#commitAnyway(change) : this.#commit(change)
      if (!withoutBackup) this.#backups.changed()
      return result
    } catch (error) {
      this.#noteFault(error)
      throw toStorageError(error)
    }
  }

  ping(): void {
    this.#requireFile()
    try {
      this.#connection.prepare('SELECT count(*) FROM schema_migrations').get()
    } catch (error) {
      this.#noteFault(error)
      throw toStorageError(error)
    }
  }

  report(): StorageReport {
    const { fault } = this.#state
    return {
      fault,
      problem: fault && describeFault(fault),
      healing: this.#healing,
      ...this.#lookAround(),
    }
  }

  close(): void {
    if (!this.#connection.open) return
    this.#state.stop()
    // Damage must not reach the backups: they are what the next start heals with.
    this.#backups.stop({ makeLast: this.#state.fault !== 'damaged' })
    this.#connection.close()
  }

  /** A folder that cannot be read must not hide what else there is to say. */
  #lookAround(): Pick<StorageReport, 'lastBackupAt' | 'putAside'> {
    try {
      const [newest] = listBackups(this.#path)
      return { lastBackupAt: newest?.madeAt, putAside: listPutAside(this.#path) }
    } catch {
      return { lastBackupAt: undefined, putAside: [] }
    }
  }

  /** SQLite goes on in a file that was deleted or moved away, and all that it writes is lost. */
  #requireFile(): void {
    if (!this.#isGone()) return
    this.#state.fail('damaged')
    this.#onDamage()
    throw refusalOf('damaged')
  }

  #isGone(): boolean {
    try {
      return markOf(this.#path) !== this.#fileMark
    } catch {
      // Not to be told from here: SQLite finds out.
      return false
    }
  }

  #commit<T>(change: () => T): T {
    const commit = this.#connection.transaction(() => {
      const result = change()
      for (const listener of this.#listeners) listener()
      return result
    })
    return commit.immediate()
  }

  /** On a full disk: gives the reserve up, folds the log in to win its room too, tries once more. */
  #commitAnyway<T>(change: () => T): T {
    try {
      return this.#commit(change)
    } catch (error) {
      if (faultOf(error) !== 'full') throw error
      this.#state.fail('full', error)
      this.#reserve.drop()
      this.#foldLogIn()
      const result = this.#commit(change)
      this.#foldLogIn()
      return result
    }
  }

  /** When it fails, the log simply stays as it is: nothing of it is lost. */
  #foldLogIn(): void {
    try {
      this.#connection.pragma('wal_checkpoint(TRUNCATE)')
    } catch (error) {
      this.#noteFault(error)
    }
  }

  #noteFault(error: unknown): void {
    const fault = faultOf(error)
    if (fault === undefined || this.#state.fault === 'damaged') return
    this.#state.fail(fault, error)
    if (fault === 'damaged') this.#onDamage()
  }

  #isOver(fault: StorageFault): boolean {
    if (fault === 'damaged') return false
    if (!this.#reserve.make()) return false
    if (fault === 'full') return this.#reserve.hasRoomBeside()
    return this.#takesWrites()
  }

  /** Writes what is there already: the smallest change that reaches the disk. */
  #takesWrites(): boolean {
    try {
      const version = this.#connection.pragma('user_version', { simple: true })
      this.#commit(() => this.#connection.pragma(`user_version = ${version}`))
      return true
    } catch {
      return false
    }
  }
}

/** Which file lies at `path`; undefined when there is none. */
function markOf(path: string): string | undefined {
  const stat = statSync(path, { throwIfNoEntry: false })
  return stat && `${stat.dev}:${stat.ino}`
}
