import { randomBytes } from 'node:crypto'
import {
  closeSync,
  existsSync,
  fsyncSync,
  mkdirSync,
  openSync,
  renameSync,
  rmSync,
  statfsSync,
  statSync,
  writeSync,
} from 'node:fs'
import { dirname } from 'node:path'
import { AppError } from '../base/app-error.ts'
import type { Clock } from '../base/clock.ts'
import { syncFolder, writeFileDurably } from '../base/file.ts'
import type { Logger } from '../base/logger.ts'
import { type Backups, listBackups } from './backup.ts'
import { journalOf } from './evidence.ts'
import { listPutAside } from './heal.ts'
import { type Commit, Committer, GroupCommit } from './journal/committer.ts'
import { readJournal } from './journal/journal-text.ts'
import type { RowJournal } from './journal/row-journal.ts'
import { RowFeed, type RowListener, type RowRecorder } from './journal/row-recorder.ts'
import { readRows, sameRows } from './journal/rows.ts'
import { readState, readSum } from './journal/trail.ts'
import { describeLosses, type Loss, LossRecord } from './loss-record.ts'
import type { Healing } from './recovery.ts'
import { type Connection, joinChange, type Statement } from './sqlite.ts'
import {
  describeFault,
  faultOf,
  refusalOf,
  type StorageFault,
  StorageState,
  toStorageError,
} from './storage-state.ts'

export interface WriteOptions {
  /** For changes that free space: a full disk gives them the reserve, and runs `change` again. */
  readonly mayUseReserve?: boolean
  /** For what may be lost with the file, such as times of use: no backup is made for it. */
  readonly withoutBackup?: boolean
  /** The id of what was changed, where this is the last write of a change that somebody asked for. */
  readonly concludes?: string
}

/**
 * Called at the end of each transaction, inside of it, with what it concludes: what it throws undoes
 * all. What it answers is called when the transaction is on stable storage.
 */
export type WriteListener = (concludes: string | undefined) => (() => void) | undefined

const MOST_VERIFIED_BYTES = 1024 * 1024

/** True for more than can be held against the rows without holding everything else up. */
export function isLarge(path: string): boolean {
  const stat = statSync(path, { throwIfNoEntry: false })
  return stat !== undefined && stat.size > MOST_VERIFIED_BYTES
}

/** The file at `path` as it was last written. */
export function versionOf(path: string): string | undefined {
  const stat = statSync(path, { throwIfNoEntry: false })
  return stat && `${markOf(path)}:${stat.mtimeMs}`
}

/** Which file lies at `path`; undefined when there is none. */
export function markOf(path: string): string | undefined {
  const stat = statSync(path, { throwIfNoEntry: false })
  return stat && `${stat.dev}:${stat.ino}`
}

/** Room for the write-ahead log at its cap and for one checkpoint of it (sqlite.ts). */
const SIZE_BYTES = 1024 * 1024

/** Disk space put by, so that rows can be deleted on a full disk: SQLite needs room for that too. */
export class ReserveFile {
  readonly #path: string
  readonly #sizeBytes: number

  constructor(path: string, sizeBytes: number = SIZE_BYTES) {
    this.#path = path
    this.#sizeBytes = sizeBytes
  }

  /** Takes the space unless it is taken; false when the disk has none. */
  make(): boolean {
    if (existsSync(this.#path)) return true
    try {
      const file = openSync(this.#path, 'wx', 0o600)
      try {
        // Random bytes, because some file systems store zeros in no space at all.
        const bytes = randomBytes(this.#sizeBytes)
        for (let at = 0; at < bytes.length; ) at += writeSync(file, bytes, at)
        fsyncSync(file)
      } finally {
        closeSync(file)
      }
      return true
    } catch {
      this.drop()
      return false
    }
  }

  /** Gives the space back; false when there was none. */
  drop(): boolean {
    if (!existsSync(this.#path)) return false
    rmSync(this.#path, { force: true })
    return true
  }

  /**
   * True when the disk has as much free space again as the reserve holds; on a small disk an eighth
   * of it is enough, because there may never be more.
   */
  hasRoomBeside(): boolean {
    try {
      const { bavail, blocks, bsize } = statfsSync(dirname(this.#path))
      return bavail * bsize >= Math.min(this.#sizeBytes, (blocks * bsize) / 8)
    } catch {
      return false
    }
  }
}

export interface FileDatabaseOptions {
  readonly connection: Connection
  readonly path: string
  readonly healing: Healing | undefined
  readonly reserve: ReserveFile
  readonly backups: Backups
  /** As new as the database. */
  readonly journal: RowJournal
  readonly recorder: RowRecorder
  readonly onDamage: () => void
  readonly log: Logger
  readonly clock: Clock
}

/** What people are shown about the storage. Times are milliseconds since the epoch. */
export interface StorageReport {
  /** Why changes are refused; undefined while they are taken. */
  readonly fault: StorageFault | undefined
  /** The same as a sentence that says what to do. */
  readonly problem: string | undefined
  /** Set when the database was damaged at this start. */
  readonly healing: Healing | undefined
  /** What may be missing since some start, until somebody has confirmed that it was seen. */
  readonly losses: readonly Loss[]
  /** The same as a sentence. */
  readonly lossProblem: string | undefined
  readonly lastBackupAt: number | undefined
  /** Names of damaged databases that wait for somebody to look at them. */
  readonly putAside: readonly string[]
}

/** How a file was left to another process. */
interface ReleasedFile {
  readonly n: number
  readonly journal: string | undefined
}

/** A database on disk, with its backups and its reserve. */
export class FileDatabase {
  readonly #connection: Connection
  readonly #path: string
  readonly #healing: Healing | undefined
  readonly #reserve: ReserveFile
  readonly #onDamage: () => void
  readonly #backups: Backups
  readonly #journal: RowJournal
  readonly #committer: Committer
  readonly #losses: LossRecord
  readonly #log: Logger
  readonly #state: StorageState
  readonly #fileMark: string | undefined
  readonly #listeners: WriteListener[] = []
  readonly #feed: RowFeed
  readonly #group: GroupCommit
  /** Set while another process has the file. */
  #released: ReleasedFile | undefined

  constructor({ log, clock, ...options }: FileDatabaseOptions) {
    this.#connection = options.connection
    this.#path = options.path
    this.#healing = options.healing
    this.#reserve = options.reserve
    this.#backups = options.backups
    this.#onDamage = options.onDamage
    this.#journal = options.journal
    this.#committer = new Committer({
      ...options,
      log,
      onTorn: (error) => this.#needRestart(error),
    })
    this.#losses = new LossRecord(options.path)
    this.#log = log
    this.#feed = new RowFeed(log)
    this.#group = new GroupCommit({
      connection: options.connection,
      commit: (changes, how) => this.#commit(changes, how),
    })
    this.#fileMark = markOf(options.path)
    this.#state = new StorageState({ log, clock, isOver: (fault) => this.#isOver(fault) })
  }

  /** Puts the reserve by; a disk without room for it counts as full. */
  start(): void {
    if (!this.#reserve.make()) this.#state.fail('full')
    if (listBackups(this.#path).length === 0) this.#backups.changed()
  }

  prepare<Parameters extends unknown[], Row = unknown>(sql: string): Statement<Parameters, Row> {
    const statement = this.#connection.prepare(sql) as Statement<Parameters, Row>
    const { get, all } = statement
    statement.get = (...parameters) => this.#read(() => get.apply(statement, parameters))
    statement.all = (...parameters) => this.#read(() => all.apply(statement, parameters))
    return statement
  }

  onWrite(listener: WriteListener): void {
    this.#listeners.push(listener)
  }

  onRows(listener: RowListener): void {
    this.#feed.follow(listener)
  }

  async change<T>(change: () => T, options: WriteOptions = {}): Promise<T> {
    const { mayUseReserve, withoutBackup = false, concludes } = options
    if (this.#connection.inTransaction) return change()
    if (mayUseReserve) {
      this.#group.flush()
      return this.write(change, options)
    }
    const concluded = () => this.#conclude(change, concludes)
    const { result, told } = await this.#group.add(concluded, withoutBackup)
    for (const tell of told) tell?.()
    return result
  }

  join<T>(change: () => T): T {
    return joinChange(this.#connection, change)
  }

  write<T>(change: () => T, options: WriteOptions = {}): T {
    if (this.#connection.inTransaction) return change()
    const { result, told } = this.#commit(() => this.#conclude(change, options.concludes), options)
    for (const tell of told) tell?.()
    return result
  }

  #conclude<T>(change: () => T, concludes: string | undefined) {
    const result = change()
    return { result, told: this.#listeners.map((listener) => listener(concludes)) }
  }

  #commit<T>(whole: () => T, { mayUseReserve, withoutBackup }: WriteOptions): T {
    this.#requireOurs()
    this.#requireFile()
    try {
      const commit = mayUseReserve ? this.#commitAnyway(whole) : this.#committer.commit(whole)
      if (!withoutBackup) this.#backups.changed()
      this.#feed.tell(commit.changes)
      return commit.result
    } catch (error) {
      this.#noteFault(error)
      throw toStorageError(error)
    }
  }

  ping(): void {
    if (!this.#released) this.#requireFile()
    try {
      this.#connection.prepare('SELECT count(*) FROM schema_migrations').get()
    } catch (error) {
      this.#noteFault(error)
      throw toStorageError(error)
    }
  }

  /** There is a backup of all that is in the database now. */
  backedUp(): void {
    this.#journal.backedUp(this.#number())
  }

  /** Throws when a row is not as it was written: holds all of them against the journal. */
  verify(): void {
    this.#requireOurs()
    try {
      this.#verify()
    } catch (error) {
      this.#noteFault(error)
      throw toStorageError(error)
    }
  }

  get fault(): StorageFault | undefined {
    return this.#state.fault
  }

  report(): StorageReport {
    const { fault } = this.#state
    const around = this.#lookAround()
    return {
      fault,
      problem: fault && describeFault(fault),
      healing: this.#healing,
      lossProblem: describeLosses(around.losses),
      ...around,
    }
  }

  confirmLosses(): void {
    this.#requireOurs()
    try {
      const losses = this.#losses.confirm()
      if (losses.length > 0) this.#log.info({ losses }, 'data loss confirmed')
    } catch (error) {
      this.#noteFault(error)
      throw toStorageError(error)
    }
  }

  /** The backup that a stop would make is made here. */
  release(): void {
    this.#group.flush()
    if (this.#state.fault !== 'damaged') this.#backups.flush()
    // What another process has changed stays changed, however often it is left to others.
    this.#released ??= { n: this.#number(), journal: versionOf(journalOf(this.#path)) }
  }

  reclaim(): void {
    const { n, journal } = this.#released ?? {}
    const isAsLeft = n === this.#number() && journal === versionOf(journalOf(this.#path))
    if (!isAsLeft || this.#isGone()) {
      throw new Error('another process changed the database in the meantime')
    }
    this.#released = undefined
  }

  close(): void {
    if (!this.#connection.open) return
    this.#group.flush()
    this.#state.stop()
    // Damage must not reach the backups: they are what the next start heals with.
    this.#backups.stop({ makeLast: !this.#released && this.#state.fault !== 'damaged' })
    this.#journal.close()
    this.#connection.close()
  }

  #verify(): void {
    const connection = this.#connection
    const { trails, isOpen } = this.#journal
    if (isLarge(journalOf(this.#path))) return
    const journal = isOpen ? readJournal(journalOf(this.#path)) : undefined
    const n = this.#number()
    if (journal?.rows && journal.tail === 'clean' && journal.n === n) {
      const isSameSum = isLarge(this.#path) || readSum(connection, trails) === journal.trails.sum
      const rows = readRows(connection, (table) => !trails.has(table))
      if (isSameSum && sameRows(rows, journal.rows)) return
      this.#needRestart()
      throw refusalOf('damaged')
    }
    this.#log.warn('the database journal was damaged or missing, starting a new one')
    this.#journal.prepareNew(readState(connection, trails)).finish()
  }

  #number(): number {
    return this.#connection.pragma('user_version', { simple: true }) as number
  }

  /** What another process has is not ours to change. */
  #requireOurs(): void {
    if (!this.#released) return
    const detail = 'Another process is taking over the database. Try again in a moment.'
    throw new AppError('storage-unavailable', detail, { retryAfterS: 1 })
  }

  #needRestart(error?: unknown): void {
    this.#state.fail('damaged', error)
    this.#onDamage()
  }

  /** Damage shows to whoever reads it first. */
  #read<T>(read: () => T): T {
    try {
      return read()
    } catch (error) {
      this.#noteFault(error)
      throw error
    }
  }

  /** A folder that cannot be read must not hide what else there is to say. */
  #lookAround(): Pick<StorageReport, 'lastBackupAt' | 'putAside' | 'losses'> {
    try {
      const [newest] = listBackups(this.#path)
      const losses = this.#losses.list()
      return { lastBackupAt: newest?.madeAt, putAside: listPutAside(this.#path), losses }
    } catch {
      return { lastBackupAt: undefined, putAside: [], losses: [] }
    }
  }

  /** SQLite goes on in a file that was deleted or moved away, and all that it writes is lost. */
  #requireFile(): void {
    if (!this.#isGone()) return
    if (this.#state.fault !== 'damaged') this.#writeAnew()
    this.#needRestart()
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

  /**
   * Writes all rows, which SQLite still has in the file without a name, to where the next start looks
   * for them. A file that somebody else put there stays: the next start tells whether it is whole.
   */
  #writeAnew(): void {
    if (statSync(this.#path, { throwIfNoEntry: false })) return
    try {
      mkdirSync(dirname(this.#path), { recursive: true, mode: 0o700 })
      this.#journal.prepareNew(readState(this.#connection, this.#journal.trails)).finish()
      writeFileDurably(`${this.#path}.rebuilt`, this.#connection.serialize())
      // The log of the file that is gone belongs to no other.
      for (const part of ['-wal', '-shm']) rmSync(`${this.#path}${part}`, { force: true })
      renameSync(`${this.#path}.rebuilt`, this.#path)
      syncFolder(dirname(this.#path))
      this.#log.warn('the database was deleted and has been restored from memory')
    } catch (error) {
      this.#log.error({ err: error }, 'the database was deleted and could not be restored')
    }
  }

  /** On a full disk: gives the reserve up, folds the log in to win its room too, tries once more. */
  #commitAnyway<T>(change: () => T): Commit<T> {
    try {
      return this.#committer.commit(change, { mayUseReserve: true })
    } catch (error) {
      if (faultOf(error) !== 'full') throw error
      this.#state.fail('full', error)
      this.#reserve.drop()
      this.#foldLogIn()
      const commit = this.#committer.commit(change, { mayUseReserve: true, isLastTry: true })
      this.#foldLogIn()
      return commit
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
    if (fault === undefined || this.#state.fault === 'damaged' || this.#released) return
    this.#state.fail(fault, error)
    if (fault === 'damaged') this.#onDamage()
  }

  #isOver(fault: StorageFault): boolean {
    if (fault === 'damaged' || this.#released) return false
    if (!this.#reserve.make()) return false
    if (fault === 'full') return this.#reserve.hasRoomBeside()
    return this.#takesWrites()
  }

  /** Writes what is there already: the smallest change that reaches the disk. */
  #takesWrites(): boolean {
    try {
      const version = this.#connection.pragma('user_version', { simple: true })
      const rewrite = () => this.#connection.pragma(`user_version = ${version}`)
      this.#connection.transaction(rewrite).immediate()
      return true
    } catch {
      return false
    }
  }
}
