import type { Clock } from '../../../base/clock.ts'
import type { Logger } from '../../../base/logger.ts'
import type { RowFeed } from '../../../store/journal/row-recorder.ts'
import { DatabaseError } from '../postgres/database-error.ts'
import { Cursor, type DatabaseFollower } from '../postgres/database-follower.ts'
import type { PostgresConnection } from '../postgres/postgres-connection.ts'
import {
  type PostgresServer,
  PostgresSession,
  type Statements,
} from '../postgres/postgres-session.ts'
import { migrateSchema, type SchemaStep } from '../postgres/schema.ts'
import type { Position } from './entry.ts'
import { CHANNEL, entriesFrom, MAX_ENTRIES, readHead, readSnapshot } from './record-log.ts'
import { compareSchemas, type SchemaOptions, upgradeRecords } from './record-schema.ts'
import type { Replica } from './replica.ts'
import { toReplicaError } from './replica-error.ts'

/** Poll interval without a notification, in milliseconds. */
const POLL_MS = 1_000
/** Timeout to read or upgrade all rows of a large site, in milliseconds. */
const LONG_MS = 60_000
/** Divisor of the batch size after a batch that took the database too long. */
const FEWER = 8
/** Entries applied before other work of the process gets a turn. */
const SLICE = 20

export interface LogFollowerOptions extends SchemaOptions {
  readonly connection: PostgresConnection
  /** Notifies of new entries. */
  readonly notices: Pick<DatabaseFollower, 'listen'>
  readonly server: PostgresServer
  /** Schema of everything in PostgreSQL. */
  readonly steps: readonly SchemaStep[]
  readonly replica: Replica
  readonly feed: RowFeed
  readonly clock: Clock
  readonly log: Logger
}

/**
 * `joining`: the schema of the records has not been compared with this version yet. `following`: it is the
 * same. `outdated`: a newer version changed it. The local copy stays as it was, and changes are refused.
 */
export type FollowerState = 'joining' | 'following' | 'outdated'

/** Applies the changes of other nodes to the local copy, in the order of the log. */
export class LogFollower {
  readonly #options: LogFollowerOptions
  readonly #cursor: Cursor
  #state: FollowerState = 'joining'
  #problem: DatabaseError | undefined
  /** Entries requested at once. Reduced after an answer that took too long. */
  #most = MAX_ENTRIES

  constructor(options: LogFollowerOptions) {
    const { notices, clock, replica } = options
    this.#options = options
    this.#cursor = new Cursor({ poll: () => this.#poll().catch(() => {}), pollMs: POLL_MS, clock })
    notices.listen(CHANNEL, {
      onNotice: (n) => {
        // The replica is closed after the stop.
        if (this.#cursor.isRunning && Number(n) !== replica.position?.n) this.#cursor.wake()
      },
      onListening: () => this.#cursor.wake(),
    })
  }

  get state(): FollowerState {
    return this.#state
  }

  /** Problem that keeps it from following the log; undefined while it follows. */
  get problem(): DatabaseError | undefined {
    return this.#problem
  }

  /**
   * Polls once, and then at intervals. Throws a DatabaseError if the first poll fails; later polls still run.
   */
  async start(): Promise<void> {
    try {
      await this.#poll()
    } finally {
      this.#cursor.start()
    }
  }

  /** Resolves when no read is in progress. */
  stop(): Promise<void> {
    return this.#cursor.stop()
  }

  /** Polls now, because there may be new entries. */
  wake(): void {
    this.#cursor.wake()
  }

  /**
   * Applies all entries up to the end of the log. The session must not be used for other work meanwhile.
   * Throws a BehindError if the log does not continue from the position of this node.
   */
  async follow(statements: Statements): Promise<void> {
    const { replica, feed } = this.#options
    for (;;) {
      const seen = replica.position
      const entries = seen && (await this.#entriesBehind(statements, seen))
      if (!entries) throw new BehindError()
      for (const [at, entry] of entries.entries()) {
        if (entry.schema !== replica.schema) throw this.#outdated()
        feed.tell(replica.apply(entry) ?? [])
        if (at % SLICE === SLICE - 1) await new Promise(setImmediate)
      }
      if (entries.length === 0) return
    }
  }

  /**
   * Throws a BehindError if even a single entry takes too long. All rows are then read, with a longer
   * timeout.
   */
  async #entriesBehind(statements: Statements, seen: Position) {
    try {
      const entries = await entriesFrom(statements, seen, this.#most)
      this.#most = Math.min(MAX_ENTRIES, this.#most + 1)
      return entries
    } catch (error) {
      if (!(error instanceof DatabaseError && error.code === 'database-slow')) throw error
      if (this.#most === 1) throw new BehindError()
      this.#most = Math.ceil(this.#most / FEWER)
      throw error
    }
  }

  async #poll(): Promise<void> {
    const { connection, log } = this.#options
    try {
      if (this.#state !== 'following') await this.#join()
      await connection.run((session) => this.follow(session)).catch((error) => this.#jump(error))
      if (this.#problem) log.info('following the records again')
      this.#problem = undefined
    } catch (error) {
      const problem = toReplicaError(error)
      this.#tell(problem)
      this.#problem = problem
      throw problem
    }
  }

  /** Logs a problem when it first occurs. The connection logs its own problems. */
  #tell(problem: DatabaseError): void {
    const { log } = this.#options
    const isKnown = this.#problem?.message === problem.message
    if (problem.code === 'replica-failed') {
      log[isKnown ? 'debug' : 'error']({ err: problem }, 'cannot follow the records')
    } else if (problem.code === 'database-newer' && !isKnown) {
      log.error(
        { err: problem },
        'the records were written by a newer version: local copy unchanged',
      )
    }
  }

  async #join(): Promise<void> {
    const { server, steps, connection, migrations, node } = this.#options
    await migrateSchema({ server, name: `${node} migrates` }, steps)
    const head = await connection.run((session) => readHead(session))
    const verdict = compareSchemas(head.schema, migrations)
    if (verdict === 'newer') throw this.#outdated()
    if (verdict === 'older') {
      await this.#long((session) =>
        session.transaction((statements) => upgradeRecords(statements, this.#options)),
      )
    }
    this.#state = 'following'
  }

  /**
   * Loads all rows after a BehindError: the log starts after the position of this node, or is another log.
   */
  async #jump(error: unknown): Promise<void> {
    if (!(error instanceof BehindError)) throw error
    const { connection, replica, feed, log } = this.#options
    // Reserves the connection, so that no change of this node is stored between the read and the load.
    await connection.run(() =>
      this.#long(async (session) => {
        const before = replica.position
        const snapshot = await session.transaction(readSnapshot)
        if (snapshot.schema !== replica.schema) throw this.#outdated()
        const { n, mark, rows } = snapshot
        const changes = replica.load(rows, { n, mark })
        const from = before?.n
        if (!before) {
          log.info({ to: n }, 'the records are up to date on this node')
        } else if (n < before.n) {
          log.error(
            { from, to: n },
            'the database was restored from an older copy: later changes are lost',
          )
        } else {
          log.warn(
            { from, to: n },
            'all records were reloaded: the change log does not go back far enough',
          )
        }
        feed.tell(changes)
      }),
    )
  }

  async #long<T>(work: (session: PostgresSession) => Promise<T>): Promise<T> {
    const { server, node } = this.#options
    const limits = { statementMs: LONG_MS, lockMs: LONG_MS, idleMs: LONG_MS, answerMs: LONG_MS }
    const session = await PostgresSession.open(
      { server, name: `${node} reads all`, limits },
      this.#cursor.signal,
    )
    try {
      return await work(session)
    } finally {
      session.close()
    }
  }

  #outdated(): DatabaseError {
    this.#state = 'outdated'
    return new DatabaseError('database-newer', 'the schema of the records has changed')
  }
}

/** The log does not continue from the position of this node. */
export class BehindError extends Error {
  override readonly name = 'BehindError'
}
