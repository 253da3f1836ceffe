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
import { isWritable } from './data-folder.ts'
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
  faultOf,
  refusalOf,
  riskOf,
  type StorageFault,
  type StorageRisk,
  StorageState,
  toStorageError,
} from './storage-state.ts'

export interface WriteOptions {
  /** For changes that free space. On a full disk they get the reserve, and `change` runs again. */
  readonly mayUseReserve?: boolean
  /** For data that may be lost with the file, such as times of use. No backup is made. */
  readonly withoutBackup?: boolean
  /** Id of the changed object, if this is the final write of a requested change. */
  readonly concludes?: string
}

/**
 * Called at the end of each transaction, within it, with its `concludes`. An error rolls the transaction
 * back. The returned function is called when the transaction is on stable storage.
 */
export type WriteListener = (concludes: string | undefined) => (() => void) | undefined

const MAX_VERIFIED_BYTES = 1024 * 1024

/** Whether the file is too large to be compared with the rows without blocking the process for too long. */
export function isLarge(path: string): boolean {
  const stat = statSync(path, { throwIfNoEntry: false })
  return stat !== undefined && stat.size > MAX_VERIFIED_BYTES
}

/** Identifies the file at `path` in its current version. */
export function versionOf(path: string): string | undefined {
  const stat = statSync(path, { throwIfNoEntry: false })
  return stat && `${markOf(path)}:${stat.mtimeMs}`
}

/** Identifies the file at `path`, undefined if it does not exist. */
export function markOf(path: string): string | undefined {
  const stat = statSync(path, { throwIfNoEntry: false })
  return stat && `${stat.dev}:${stat.ino}`
}

/** Room for the write-ahead log at its maximum size and for one checkpoint of it (sqlite.ts). */
const SIZE_BYTES = 1024 * 1024
/** Room that ends a full disk: more than a usual change, and little to write at each check. */
const TRIAL_BYTES = 64 * 1024

/** Reserved disk space, so that rows can be deleted on a full disk: SQLite needs room for deletes too. */
export class ReserveFile {
  readonly #path: string
  readonly #sizeBytes: number
  /** Free bytes at the last refusal. */
  #refusedAtBytes = 0

  constructor(path: string, sizeBytes: number = SIZE_BYTES) {
    this.#path = path
    this.#sizeBytes = sizeBytes
  }

  /** Reserves the space if needed. Returns false if the disk is full. */
  make(): boolean {
    if (existsSync(this.#path)) return true
    const isMade = fillFile(this.#path, this.#sizeBytes)
    if (!isMade) this.drop()
    return isMade
  }

  /** Frees the space. Returns false if it was not reserved. */
  drop(): boolean {
    if (!existsSync(this.#path)) return false
    rmSync(this.#path, { force: true })
    return true
  }

  /** Whether the disk takes a file beside the reserve. Writes the file and removes it. */
  hasRoomBeside(): boolean {
    const trial = `${this.#path}.trial`
    const hasRoom = fillFile(trial, Math.min(TRIAL_BYTES, this.#sizeBytes))
    try {
      rmSync(trial, { force: true })
    } catch {
      return false
    }
    return hasRoom
  }

  /**
   * Whether less space is free than the size of the reserve. On a small disk an eighth of its size is enough,
   * because more may never be free. False if the free space is unknown.
   */
  isSpaceLow(): boolean {
    const { freeBytes, sizeBytes } = this.#disk()
    return freeBytes < Math.min(this.#sizeBytes, sizeBytes / 8)
  }

  /** Whether no usual change fits beside the reserve. False if the free space is unknown. */
  isSpaceGone(): boolean {
    return this.#disk().freeBytes < Math.min(TRIAL_BYTES, this.#sizeBytes)
  }

  /** Notes the free space at a refusal. */
  noteRefusal(): void {
    this.#refusedAtBytes = this.#disk().freeBytes
  }

  /** Whether a usual change fits that did not fit at the last refusal. A large change needs more. */
  hasGainedRoom(): boolean {
    return this.#disk().freeBytes >= this.#refusedAtBytes + TRIAL_BYTES
  }

  #disk(): { readonly freeBytes: number; readonly sizeBytes: number } {
    try {
      const { bavail, bfree, blocks, bsize } = statfsSync(dirname(this.#path))
      // Root may use the blocks that the file system reserves for root.
      const free = process.geteuid?.() === 0 ? bfree : bavail
      return { freeBytes: free * bsize, sizeBytes: blocks * bsize }
    } catch {
      return { freeBytes: Number.POSITIVE_INFINITY, sizeBytes: 0 }
    }
  }
}

/** Writes a file of this size to stable storage. Returns false if the disk refuses it. */
function fillFile(path: string, sizeBytes: number): boolean {
  try {
    const file = openSync(path, 'w', 0o600)
    try {
      // Random bytes, because some file systems store zeros without using space.
      const bytes = randomBytes(sizeBytes)
      for (let at = 0; at < bytes.length; ) at += writeSync(file, bytes, at)
      fsyncSync(file)
    } finally {
      closeSync(file)
    }
    return true
  } catch {
    return false
  }
}

export interface FileDatabaseOptions {
  readonly connection: Connection
  readonly path: string
  readonly healing: Healing | undefined
  readonly reserve: ReserveFile
  readonly backups: Backups
  /** Up to date with the database. */
  readonly journal: RowJournal
  readonly recorder: RowRecorder
  readonly onDamage: () => void
  readonly log: Logger
  readonly clock: Clock
}

/** State of the storage for people. Times are milliseconds since the epoch. */
export interface StorageReport {
  /** Reason why changes are refused, undefined if they are accepted. */
  readonly fault: StorageFault | undefined
  /** The fault in one sentence that says what to do. */
  readonly problem: string | undefined
  /** Risk for later changes. Changes are accepted now. */
  readonly risk: StorageRisk | undefined
  /** Set if the database was damaged at this start. */
  readonly healing: Healing | undefined
  /** Possible losses since earlier starts, until they are confirmed. */
  readonly losses: readonly Loss[]
  /** The losses in one sentence. */
  readonly lossProblem: string | undefined
  readonly lastBackupAt: number | undefined
  /** Names of damaged databases that were set aside for inspection. */
  readonly putAside: readonly string[]
}

/** State of a file when it was left to another process. */
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
    const isOver = (fault: StorageFault) => this.#isOver(fault)
    this.#state = new StorageState({ folder: dirname(options.path), log, clock, isOver })
  }

  /** Creates the reserve. A disk without room for it counts as full. */
  start(): void {
    if (!this.#reserve.make()) this.#noteFull()
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
      throw toStorageError(error, dirname(this.#path))
    }
  }

  ping(): void {
    if (!this.#released) this.#requireFile()
    try {
      this.#connection.prepare('SELECT count(*) FROM schema_migrations').get()
    } catch (error) {
      this.#noteFault(error)
      throw toStorageError(error, dirname(this.#path))
    }
  }

  /** Reports that a backup contains the current state of the database. */
  backedUp(): void {
    this.#journal.backedUp(this.#number())
  }

  /** Compares all rows with the journal. Throws if a row differs from what was written. */
  verify(): void {
    this.#requireOurs()
    try {
      this.#verify()
    } catch (error) {
      this.#noteFault(error)
      throw toStorageError(error, dirname(this.#path))
    }
  }

  get fault(): StorageFault | undefined {
    return this.#state.fault
  }

  report(): StorageReport {
    if (this.#state.fault === 'full' && this.#reserve.hasGainedRoom()) this.#state.recheck()
    const risk = this.#riskOfDisk()
    const { fault, problem } = this.#state
    const around = this.#lookAround()
    return {
      fault,
      problem,
      risk,
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
      throw toStorageError(error, dirname(this.#path))
    }
  }

  /** Makes the backup that a stop would make. */
  release(): void {
    this.#group.flush()
    if (this.#state.fault !== 'damaged') this.#backups.flush()
    // `??=` keeps the first state, so that changes by another process are noticed even after several
    // releases.
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
    // Damage must not reach the backups, because the next start recovers from them.
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

  /** Throws after `release()`, because the file belongs to another process. */
  #requireOurs(): void {
    if (!this.#released) return
    const detail = 'Another process is taking over the database. Try again in a moment.'
    throw new AppError('storage-unavailable', detail, { retryAfterS: 1 })
  }

  #needRestart(error?: unknown): void {
    this.#state.fail('damaged', error)
    this.#onDamage()
  }

  /** Reads and records a fault, because any read may discover damage. */
  #read<T>(read: () => T): T {
    try {
      return read()
    } catch (error) {
      this.#noteFault(error)
      throw error
    }
  }

  /** Looks for a fault that later changes will meet. A read-only disk is a fault if it refuses a write. */
  #riskOfDisk(): StorageRisk | undefined {
    if (this.#state.fault !== undefined || this.#released) return undefined
    const folder = dirname(this.#path)
    if (!existsSync(folder)) return undefined
    if (isWritable(folder)) {
      if (this.#reserve.isSpaceGone()) return riskOf('full', folder)
      return this.#reserve.isSpaceLow() ? riskOf('low', folder) : undefined
    }
    if (this.#takesWrites()) return riskOf('unwritable', folder)
    this.#state.fail('unwritable')
    return undefined
  }

  /** Collects the facts from the folder. If it cannot be read, the rest of the report is still useful. */
  #lookAround(): Pick<StorageReport, 'lastBackupAt' | 'putAside' | 'losses'> {
    try {
      const [newest] = listBackups(this.#path)
      const losses = this.#losses.list()
      return { lastBackupAt: newest?.madeAt, putAside: listPutAside(this.#path), losses }
    } catch {
      return { lastBackupAt: undefined, putAside: [], losses: [] }
    }
  }

  /**
   * Throws if the file was deleted or moved away. SQLite would continue in it, and its writes would be lost.
   */
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
      // Not known here. SQLite will find out.
      return false
    }
  }

  /**
   * Writes all rows to the path where the next start looks for them. SQLite still has them in the deleted
   * file. An existing file at that path stays, and the next start checks it.
   */
  #writeAnew(): void {
    if (statSync(this.#path, { throwIfNoEntry: false })) return
    try {
      mkdirSync(dirname(this.#path), { recursive: true, mode: 0o700 })
      this.#journal.prepareNew(readState(this.#connection, this.#journal.trails)).finish()
      writeFileDurably(`${this.#path}.rebuilt`, this.#connection.serialize())
      // The WAL of the deleted file does not belong to the new one.
      for (const part of ['-wal', '-shm']) rmSync(`${this.#path}${part}`, { force: true })
      renameSync(`${this.#path}.rebuilt`, this.#path)
      syncFolder(dirname(this.#path))
      this.#log.warn('the database was deleted and has been restored from memory')
    } catch (error) {
      this.#log.error({ err: error }, 'the database was deleted and could not be restored')
    }
  }

  /** Frees the reserve on a full disk, merges the WAL to free its space too, and tries once more. */
  #commitAnyway<T>(change: () => T): Commit<T> {
    try {
      return this.#committer.commit(change, { mayUseReserve: true })
    } catch (error) {
      if (faultOf(error) !== 'full') throw error
      this.#noteFull(error)
      this.#reserve.drop()
      this.#foldLogIn()
      const commit = this.#committer.commit(change, { mayUseReserve: true, isLastTry: true })
      this.#foldLogIn()
      return commit
    }
  }

  /** Merges the WAL into the file. If this fails, the WAL stays unchanged and nothing is lost. */
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
    if (fault === 'full') this.#noteFull(error)
    else this.#state.fail(fault, error)
    if (fault === 'damaged') this.#onDamage()
  }

  #noteFull(error?: unknown): void {
    this.#reserve.noteRefusal()
    this.#state.fail('full', error)
  }

  #isOver(fault: StorageFault): boolean {
    if (fault === 'damaged' || this.#released) return false
    if (!this.#reserve.make()) return false
    if (fault === 'full' && !this.#reserve.hasRoomBeside()) return false
    return this.#takesWrites()
  }

  /** Writes the current value: the smallest change that reaches the disk. */
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
