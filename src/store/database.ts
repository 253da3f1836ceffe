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
 * An open database: owners prepare statements once and change rows only inside `write()`. Each table
 * has a primary key.
 */
export interface Database {
  prepare<Parameters extends unknown[], Row = unknown>(sql: string): Statement<Parameters, Row>
  /**
   * Runs `change` in one transaction: when this returns, all of it is on stable storage.
   * Throws AppError `storage-full` or `storage-unavailable`, and then none of it happened.
   */
  write<T>(change: () => T, options?: WriteOptions): T
  /**
   * The same for rows that several processes may share: resolves when they are on stable storage and
   * to be read here. `change` runs at once or later, in the context of the caller, and maybe again on
   * newer rows: what it checks holds, and what it does beside changing rows has to wait until then.
   */
  change<T>(change: () => T, options?: WriteOptions): Promise<T>
  /** Changes rows within the change that is open. Throws outside of one. */
  join<T>(change: () => T): T
  onWrite(listener: WriteListener): void
  /** Tells of rows that were changed, whoever did, as soon as they are to be read. */
  onRows(listener: RowListener): void
  /** Throws unless the database can be read. */
  ping(): void
  /** Why changes are refused; undefined while they are taken. Costs nothing, unlike `report`. */
  readonly fault: StorageFault | undefined
  report(): StorageReport
  /** Somebody has seen what may be missing: it is not reported any more. Throws as `write` does. */
  confirmLosses(): void
  /**
   * Leaves the file to another process: from now on all can be read, and changes are refused with
   * `storage-unavailable`.
   */
  release(): void
  /** Takes it back. Throws when the other process has changed it: changes stay refused then. */
  reclaim(): void
  close(): void
}

export interface DatabaseOptions {
  /** The file, or `:memory:` for a database that nobody keeps. */
  readonly path: string
  /** The schemas of all owners, each owner's steps in their order. */
  readonly migrations: readonly Migration[]
  /** Says whose file this is (32 bits); a file with another mark is put aside. */
  readonly applicationId: number
  /** Called when only a new start can heal: the file is damaged, or can be written again. */
  readonly onRestartNeeded?: (reason: string) => void
  /** How much disk space is put by for deletes. */
  readonly reserveBytes?: number
  readonly log: Logger
  readonly clock: Clock
}

/**
 * Opens, heals and migrates a database. When its disk cannot be written, the last state is served
 * from memory and every change refused. Throws a StartError when a person has to act.
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
  // A journal that begins anew knows no newest rows of trails: a backup has them.
  if (!hasJournal) backups.changed()
  return database
}

/** A new schema begins a new journal, which takes its place after the commit as for any change. */
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

/** A full disk may have no room even for opening: the reserve makes some, else a copy has to do. */
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
    if (!isWritable(folder) || (fault === 'full' && !reserve.hasRoomBeside())) return false
    onRestartNeeded?.('the data directory is writable again')
    return true
  }
  const state = new StorageState({ log, clock, isOver })
  state.fail(fault, cause)
  return new MemoryDatabase(copy.connection, undefined, {
    fault,
    healing: copy.healing,
    losses: new LossRecord(path),
    openedAt: clock.now(),
    onClose: () => state.stop(),
  })
}

function readCopy(options: DatabaseOptions, fault: StorageFault): SoundConnection {
  const { path } = options
  const state = `The data directory ${dirname(path)} is not writable (${fault})`
  try {
    const copy = openMemoryCopy(options)
    if (copy) return copy
  } catch (error) {
    throw new StartError(`${state} and its database is not readable: ${error}`, { cause: error })
  }
  throw new StartError(`${state} and contains no database. Make it writable or free disk space.`)
}
