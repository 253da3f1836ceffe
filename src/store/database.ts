import { dirname } from 'node:path'
import { StartError } from '../base/app-error.ts'
import type { Clock } from '../base/clock.ts'
import type { Logger } from '../base/logger.ts'
import { Backups } from './backup.ts'
import { isWritable, prepareDataFolder } from './data-folder.ts'
import { journalOf } from './evidence.ts'
import {
  FileDatabase,
  ReserveFile,
  type StorageReport,
  type WriteListener,
  type WriteOptions,
} from './file-database.ts'
import { markInitialised, openMemoryCopy, openSound, type SoundConnection } from './heal.ts'
import { type PreparedChange, RowJournal } from './journal/row-journal.ts'
import { RowFeed, type RowListener, RowRecorder } from './journal/row-recorder.ts'
import { readState } from './journal/trail.ts'
import { LossRecord } from './loss-record.ts'
import { MemoryDatabase } from './memory-database.ts'
import { JOURNAL_MIGRATION, type Migration, migrate, trailsOf } from './migrations.ts'
import { type Connection, openMemory, type Statement } from './sqlite.ts'
import { faultOf, isHeld, type StorageFault, StorageState } from './storage-state.ts'

export type { StorageReport, WriteOptions } from './file-database.ts'
export type { Statement } from './sqlite.ts'

/**
 * An open database. Owners prepare statements once, and change rows only within `write()` or `change()`. Each
 * table has a primary key.
 */
export interface Database {
  prepare<Parameters extends unknown[], Row = unknown>(sql: string): Statement<Parameters, Row>
  /**
   * Runs `change` in one transaction. When this returns, the result is on stable storage. Throws AppError
   * `storage-full` or `storage-unavailable`, and nothing is changed then.
   */
  write<T>(change: () => T, options?: WriteOptions): T
  /**
   * Like `write`, for rows that several processes may share. Resolves when the rows are on stable storage and
   * readable here.
   *
   * `change` runs at once or later, in the context of the caller, and perhaps again on newer rows. Its checks
   * are valid for the committed rows. Side effects other than changed rows have to wait until this resolves.
   */
  change<T>(change: () => T, options?: WriteOptions): Promise<T>
  /** Changes rows within the current change. Throws outside of a change. */
  join<T>(change: () => T): T
  onWrite(listener: WriteListener): void
  /** Reports rows changed by any process, as soon as they are readable. */
  onRows(listener: RowListener): void
  /** Throws if the database cannot be read. */
  ping(): void
  /** Reason why changes are refused, undefined if they are accepted. Cheap, unlike `report`. */
  readonly fault: StorageFault | undefined
  report(): StorageReport
  /** Confirms reported losses, which are not reported again. Throws like `write`. */
  confirmLosses(): void
  /**
   * Leaves the file to another process. Reads continue, and changes are refused with `storage-unavailable`.
   */
  release(): void
  /** Takes the file back. Throws if the other process has changed it, and changes stay refused then. */
  reclaim(): void
  close(): void
}

export interface DatabaseOptions {
  /** The file, or `:memory:` for a database that is not stored. */
  readonly path: string
  /** The schemas of all owners. Each owner's steps are in order. */
  readonly migrations: readonly Migration[]
  /** Marks the file as ours (32 bits). A file with another mark is set aside. */
  readonly applicationId: number
  /** Called when a restart is needed to recover: the file is damaged, or writable again. */
  readonly onRestartNeeded?: (reason: string) => void
  /** Disk space reserved for deletes. */
  readonly reserveBytes?: number
  readonly log: Logger
  readonly clock: Clock
}

/**
 * Opens, repairs and migrates a database. If its disk is not writable, serves the last state from memory and
 * refuses changes. Throws a StartError if a person has to act.
 */
export function openDatabase(given: DatabaseOptions): Database {
  if (given.path === ':memory:') {
    const connection = openMemory()
    migrate(connection, given)
    return new MemoryDatabase(connection, {
      recorder: new RowRecorder(connection),
      feed: new RowFeed(given.log),
    })
  }
  const options = { ...given, migrations: [...given.migrations, JOURNAL_MIGRATION] }
  const reserve = new ReserveFile(`${options.path}.reserve`, options.reserveBytes)
  if (!prepareDataFolder(dirname(options.path), options.log)) {
    return openCopy(options, reserve, 'unwritable')
  }
  try {
    return openOnDisk(options, reserve)
  } catch (error) {
    return openInNeed(options, reserve, error)
  }
}

function openOnDisk(options: DatabaseOptions, reserve: ReserveFile): Database {
  const { path, log, clock, onRestartNeeded } = options
  const trails = trailsOf(options.migrations)
  const journal = new RowJournal({ path: journalOf(path), trails, clock })
  const { connection, healing } = openSound({ ...options, journal })
  const backups = new Backups({
    connection,
    path,
    verify: () => database.verify(),
    onMade: () => database.backedUp(),
    log,
    clock,
  })
  const recorder = new RowRecorder(connection)
  const hasJournal = journal.isOpen
  try {
    migrateWithJournal(connection, journal, options, backups)
    recorder.start()
    markInitialised(path)
  } catch (error) {
    journal.close()
    connection.close()
    throw error
  }
  const database: FileDatabase = new FileDatabase({
    connection,
    path,
    healing,
    reserve,
    backups,
    journal,
    recorder,
    onDamage: () => onRestartNeeded?.('the database is damaged'),
    log,
    clock,
  })
  database.start()
  // A new journal does not contain the newest rows of trails, so a backup has to.
  if (!hasJournal) backups.changed()
  return database
}

/**
 * Migrates the database. A new schema starts a new journal. It replaces the old one after the commit, as for
 * any change.
 */
function migrateWithJournal(
  connection: Connection,
  journal: RowJournal,
  options: DatabaseOptions,
  backups: Backups,
): void {
  const stateAfter = () => readState(connection, journal.trails)
  let prepared: PreparedChange | undefined
  try {
    migrate(connection, {
      ...options,
      beforeUpdate: () => backups.make(),
      atEnd: () => {
        const n = connection.pragma('user_version', { simple: true }) as number
        connection.pragma(`user_version = ${n + 1}`)
        prepared = journal.prepareNew(stateAfter())
      },
    })
  } catch (error) {
    prepared?.cancel()
    throw error
  }
  prepared?.finish()
  if (!journal.isOpen) journal.prepareNew(stateAfter()).finish()
}

/** Handles a failed open. On a full disk, frees the reserve and tries again, or else opens a copy. */
function openInNeed(options: DatabaseOptions, reserve: ReserveFile, error: unknown): Database {
  if (isHeld(error)) {
    throw new StartError(
      `Another program is using the database ${options.path}. Close that program first.`,
      {
        cause: error,
      },
    )
  }
  const fault = faultOf(error)
  if (fault === undefined) throw error
  if (!reserve.drop()) return openCopy(options, reserve, fault, error)
  try {
    return openOnDisk(options, reserve)
  } catch (again) {
    return openInNeed(options, reserve, again)
  }
}

function openCopy(
  options: DatabaseOptions,
  reserve: ReserveFile,
  fault: StorageFault,
  cause?: unknown,
): Database {
  const { path, log, clock, onRestartNeeded } = options
  const folder = dirname(path)
  const copy = readCopy(options, fault)
  migrate(copy.connection, options)
  copy.connection.pragma('query_only = ON')
  const isOver = () => {
    if (!isWritable(folder) || (fault === 'full' && reserve.isSpaceLow())) return false
    onRestartNeeded?.('the data directory is writable again')
    return true
  }
  const state = new StorageState({ folder, log, clock, isOver })
  state.fail(fault, cause)
  return new MemoryDatabase(copy.connection, undefined, {
    fault,
    problem: () => state.problem,
    healing: copy.healing,
    losses: new LossRecord(path),
    openedAt: clock.now(),
    onClose: () => state.stop(),
  })
}

function readCopy(options: DatabaseOptions, fault: StorageFault): SoundConnection {
  const { path } = options
  const flaw = fault === 'full' ? 'is on a full disk' : 'is not writable'
  const state = `The data directory ${dirname(path)} ${flaw}`
  try {
    const copy = openMemoryCopy(options)
    if (copy) return copy
  } catch (error) {
    throw new StartError(`${state} and its database is not readable: ${error}`, { cause: error })
  }
  throw new StartError(`${state} and contains no database. Make it writable or free disk space.`)
}
