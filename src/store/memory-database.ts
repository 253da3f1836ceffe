import type { StorageReport, WriteListener, WriteOptions } from './file-database.ts'
import type { RowFeed, RowListener, RowRecorder } from './journal/row-recorder.ts'
import type { RowChange } from './journal/rows.ts'
import { describeLosses, type Loss, type LossRecord } from './loss-record.ts'
import { type Healing, isLossy } from './recovery.ts'
import { type Connection, joinChange, type Statement } from './sqlite.ts'
import { refusalOf, type StorageFault } from './storage-state.ts'

/** Reason for a copy: the database on disk and its fault. */
export interface CopyOrigin {
  readonly fault: StorageFault
  readonly healing: Healing | undefined
  readonly losses: LossRecord
  /** The fault and what to do. */
  readonly problem: () => string | undefined
  /** Milliseconds since the epoch. */
  readonly openedAt: number
  readonly onClose: () => void
}

/** Recorder and feed for changed rows. */
export interface Following {
  readonly recorder: RowRecorder
  readonly feed: RowFeed
}

/** A database in memory: temporary, or a read-only copy of a database on disk. */
export class MemoryDatabase {
  readonly #connection: Connection
  /** Undefined for a read-only copy. */
  readonly #following: Following | undefined
  readonly #origin: CopyOrigin | undefined
  readonly #listeners: WriteListener[] = []

  constructor(connection: Connection, following?: Following, origin?: CopyOrigin) {
    this.#connection = connection
    this.#following = following
    this.#origin = origin
    following?.recorder.start()
  }

  prepare<Parameters extends unknown[], Row = unknown>(sql: string): Statement<Parameters, Row> {
    return this.#connection.prepare(sql) as Statement<Parameters, Row>
  }

  onWrite(listener: WriteListener): void {
    this.#listeners.push(listener)
  }

  onRows(listener: RowListener): void {
    this.#following?.feed.follow(listener)
  }

  async change<T>(change: () => T, options?: WriteOptions): Promise<T> {
    return this.write(change, options)
  }

  join<T>(change: () => T): T {
    return joinChange(this.#connection, change)
  }

  write<T>(change: () => T, { concludes }: WriteOptions = {}): T {
    if (this.#origin) throw refusalOf(this.#origin.fault)
    if (this.#connection.inTransaction) return change()
    let committed: ReturnType<WriteListener>[] = []
    let changes: readonly RowChange[] = []
    const commit = this.#connection.transaction(() => {
      this.#following?.recorder.clear()
      const result = change()
      committed = this.#listeners.map((listener) => listener(concludes))
      changes = this.#following?.recorder.changes() ?? []
      return result
    })
    const result = commit.immediate()
    for (const tell of committed) tell?.()
    this.#following?.feed.tell(changes)
    return result
  }

  ping(): void {
    this.#connection.prepare('SELECT count(*) FROM schema_migrations').get()
  }

  get fault(): StorageFault | undefined {
    return this.#origin?.fault
  }

  report(): StorageReport {
    const { fault, healing } = this.#origin ?? {}
    const losses = this.#losses()
    return {
      fault,
      problem: this.#origin?.problem(),
      risk: undefined,
      healing,
      losses,
      lossProblem: describeLosses(losses),
      lastBackupAt: undefined,
      putAside: [],
    }
  }

  confirmLosses(): void {
    if (this.#origin) throw refusalOf(this.#origin.fault)
  }

  /** Nothing to do: other processes do not share this memory, and a copy is read-only. */
  release(): void {}

  reclaim(): void {}

  close(): void {
    this.#origin?.onClose()
    this.#connection.close()
  }

  /** Returns recorded losses, and the loss found at this start, which could not be recorded. */
  #losses(): readonly Loss[] {
    if (!this.#origin) return []
    const { healing, losses, openedAt } = this.#origin
    const now = healing && isLossy(healing) ? [{ ...healing, foundAt: openedAt }] : []
    return [...losses.list(), ...now]
  }
}
