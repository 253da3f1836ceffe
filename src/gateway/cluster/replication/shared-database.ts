import type { Clock } from '../../../base/clock.ts'
import type { Logger } from '../../../base/logger.ts'
import type { Database, WriteOptions } from '../../../store/database.ts'
import type { StorageReport, WriteListener } from '../../../store/file-database.ts'
import { RowFeed, type RowListener } from '../../../store/journal/row-recorder.ts'
import type { Migration } from '../../../store/migrations.ts'
import type { Statement } from '../../../store/sqlite.ts'
import type { StorageFault } from '../../../store/storage-state.ts'
import type { DatabaseError } from '../postgres/database-error.ts'
import { PostgresConnection } from '../postgres/postgres-connection.ts'
import type { PostgresServer } from '../postgres/postgres-session.ts'
import type { SchemaStep } from '../postgres/schema.ts'
import { ChangeQueue } from './change-queue.ts'
import { LogFollower, type LogFollowerOptions } from './log-follower.ts'
import { Replica } from './replica.ts'

export interface SharedDatabaseOptions {
  readonly server: PostgresServer
  readonly notices: LogFollowerOptions['notices']
  /** Schema of everything in PostgreSQL, including `RECORD_STEPS`. */
  readonly steps: readonly SchemaStep[]
  /** Path of the local copy. */
  readonly path: string
  readonly migrations: readonly Migration[]
  readonly applicationId: number
  /** Name of this node for the others. */
  readonly node: string
  readonly clock: Clock
  readonly log: Logger
}

/**
 * Records that several gateways share. PostgreSQL stores them, and each node reads its own copy in SQLite.
 * Without PostgreSQL, all records can be read, but not changed.
 */
export class SharedDatabase implements Database {
  readonly #replica: Replica
  readonly #connection: PostgresConnection
  readonly #follower: LogFollower
  readonly #queue: ChangeQueue
  readonly #feed: RowFeed
  readonly #listeners: WriteListener[] = []
  #epoch: () => number | undefined = () => undefined

  private constructor(options: SharedDatabaseOptions) {
    const { server, node, clock, log } = options
    this.#feed = new RowFeed(log)
    this.#replica = Replica.open(options)
    this.#connection = new PostgresConnection({ server, name: `${node} writes`, clock, log })
    const parts = { connection: this.#connection, replica: this.#replica, feed: this.#feed }
    this.#follower = new LogFollower({ ...options, ...parts })
    const epoch = () => this.#epoch()
    this.#queue = new ChangeQueue({ ...parts, follower: this.#follower, node, epoch, clock })
  }

  /**
   * Opens the local copy and follows the records. Throws a DatabaseError if the records cannot be followed
   * and this node has no copy yet.
   */
  static async open(options: SharedDatabaseOptions): Promise<SharedDatabase> {
    const database = new SharedDatabase(options)
    database.#connection.start()
    try {
      await database.#follower.start()
    } catch (error) {
      if (!database.#replica.position) {
        await database.stop()
        throw error
      }
      options.log.warn({ err: error }, 'reading the records from the local copy')
    }
    return database
  }

  /** From now on, PostgreSQL stores changes of this node only in its current epoch. */
  changeIn(epoch: () => number | undefined): void {
    this.#epoch = epoch
  }

  prepare<Parameters extends unknown[], Row = unknown>(sql: string): Statement<Parameters, Row> {
    return this.#replica.prepare(sql)
  }

  /** Changes rows that are not shared with other nodes. */
  write<T>(change: () => T): T {
    return this.#replica.inChange ? change() : this.#replica.writeOwn(change)
  }

  change<T>(change: () => T, { concludes }: WriteOptions = {}): Promise<T> {
    return this.#queue.add(() => {
      const result = change()
      const told = this.#listeners.map((listener) => listener(concludes))
      return {
        result,
        told: () => {
          for (const tell of told) tell?.()
        },
      }
    })
  }

  join<T>(change: () => T): T {
    if (this.#replica.inChange) return change()
    throw new Error('these rows are changed within Database.change() only')
  }

  onWrite(listener: WriteListener): void {
    this.#listeners.push(listener)
  }

  onRows(listener: RowListener): void {
    this.#feed.follow(listener)
  }

  ping(): void {
    this.#replica.position
  }

  get fault(): StorageFault | undefined {
    return this.#follower.problem ? 'unwritable' : undefined
  }

  /** Problem that keeps this node from following the records. */
  get problem(): DatabaseError | undefined {
    return this.#follower.problem
  }

  report(): StorageReport {
    const { fault } = this
    return {
      fault,
      problem: this.#follower.problem?.message,
      risk: undefined,
      healing: undefined,
      losses: [],
      lossProblem: undefined,
      lastBackupAt: undefined,
      putAside: [],
    }
  }

  /** No effect: PostgreSQL has its own protection against losses. */
  confirmLosses(): void {}

  /** Leaves changes to the other process of this node. This process still follows the records. */
  release(): void {
    this.#queue.pause()
  }

  reclaim(): void {
    this.#queue.resume()
  }

  close(): void {
    void this.stop()
  }

  /** Stops all work and closes the local copy. */
  async stop(): Promise<void> {
    this.#queue.stop()
    await this.#follower.stop()
    await this.#connection.stop()
    this.#replica.close()
  }
}
