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
  /** Of all that this gateway keeps in PostgreSQL, `RECORD_STEPS` among them. */
  readonly steps: readonly SchemaStep[]
  /** The file of this node's own copy. */
  readonly path: string
  readonly migrations: readonly Migration[]
  readonly applicationId: number
  /** Names this node to the others. */
  readonly node: string
  readonly clock: Clock
  readonly log: Logger
}

/**
 * Records that several gateways have in common: PostgreSQL has them, and each node a copy in SQLite that
 * all reads go to. Without PostgreSQL everything can be read, and nothing changed.
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
   * Opens this node's copy and follows the records. Throws a DatabaseError when PostgreSQL is not there
   * and this node has never seen the records.
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

  /** From now on PostgreSQL takes changes of this node in the epoch alone in which that is. */
  changeIn(epoch: () => number | undefined): void {
    this.#epoch = epoch
  }

  prepare<Parameters extends unknown[], Row = unknown>(sql: string): Statement<Parameters, Row> {
    return this.#replica.prepare(sql)
  }

  /** For rows of this node alone. */
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

  /** Why the records are not followed at the moment. */
  get problem(): DatabaseError | undefined {
    return this.#follower.problem
  }

  report(): StorageReport {
    const { fault } = this
    return {
      fault,
      problem: this.#follower.problem?.message,
      healing: undefined,
      losses: [],
      lossProblem: undefined,
      lastBackupAt: undefined,
      putAside: [],
    }
  }

  /** PostgreSQL has its own ways to lose nothing. */
  confirmLosses(): void {}

  /** The other process of this node changes records now; this one still follows them. */
  release(): void {
    this.#queue.pause()
  }

  reclaim(): void {
    this.#queue.resume()
  }

  close(): void {
    void this.stop()
  }

  /** Ends what is under way and closes this node's copy. */
  async stop(): Promise<void> {
    this.#queue.stop()
    await this.#follower.stop()
    await this.#connection.stop()
    this.#replica.close()
  }
}
