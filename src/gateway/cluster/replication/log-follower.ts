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
import { CHANNEL, entriesFrom, MOST_ENTRIES, readHead, readSnapshot } from './record-log.ts'
import { compareSchemas, type SchemaOptions, upgradeRecords } from './record-schema.ts'
import type { Replica } from './replica.ts'
import { toReplicaError } from './replica-error.ts'

/** Interval of polls without a notification. */
const LOOK_MS = 1_000
/** Rows of a large site in another form, or all of them at once. */
const LONG_MS = 60_000
/** By how much fewer entries are asked for when so many took the database too long. */
const FEWER = 8
/** Entries that are applied without letting anybody else do something. */
const SLICE = 20

export interface LogFollowerOptions extends SchemaOptions {
  readonly connection: PostgresConnection
  /** Tells of new entries. */
  readonly notices: Pick<DatabaseFollower, 'listen'>
  readonly server: PostgresServer
  /** Of all that this gateway keeps in PostgreSQL. */
  readonly steps: readonly SchemaStep[]
  readonly replica: Replica
  readonly feed: RowFeed
  readonly clock: Clock
  readonly log: Logger
}

/**
 * `joining`: it has not been seen yet that the records have the form of this version. `outdated`: they
 * have that of a newer one, so that nothing can be read or changed any more.
 */
export type FollowerState = 'joining' | 'following' | 'outdated'

/** Brings what others have changed into this node's own copy, in the order in which it was taken. */
export class LogFollower {
  readonly #options: LogFollowerOptions
  readonly #cursor: Cursor
  #state: FollowerState = 'joining'
  #problem: DatabaseError | undefined
  /** Entries that are asked for at once: fewer after an answer that took too long. */
  #most = MOST_ENTRIES

  constructor(options: LogFollowerOptions) {
    const { notices, clock, replica } = options
    this.#options = options
    this.#cursor = new Cursor({ poll: () => this.#look().catch(() => {}), pollMs: LOOK_MS, clock })
    notices.listen(CHANNEL, {
      onNotice: (n) => {
        // After the stop, the replica is closed.
        if (this.#cursor.isRunning && Number(n) !== replica.position?.n) this.#cursor.wake()
      },
      onListening: () => this.#cursor.wake(),
    })
  }

  get state(): FollowerState {
    return this.#state
  }

  /** Why it does not follow at the moment; undefined while it does. */
  get problem(): DatabaseError | undefined {
    return this.#problem
  }

  /** Looks once, and goes on by itself. Throws a DatabaseError when the first look failed. */
  async start(): Promise<void> {
    try {
      await this.#look()
    } finally {
      this.#cursor.start()
    }
  }

  /** Resolves when nothing is read any longer. */
  stop(): Promise<void> {
    return this.#cursor.stop()
  }

  /** There may be something new. */
  wake(): void {
    this.#cursor.wake()
  }

  /** Comes as far as the log is. The session is for it alone meanwhile. */
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

  /** Where a single one takes too long, there is another way: all rows, in their own time. */
  async #entriesBehind(statements: Statements, seen: Position) {
    try {
      const entries = await entriesFrom(statements, seen, this.#most)
      this.#most = Math.min(MOST_ENTRIES, this.#most + 1)
      return entries
    } catch (error) {
      if (!(error instanceof DatabaseError && error.code === 'database-slow')) throw error
      if (this.#most === 1) throw new BehindError()
      this.#most = Math.ceil(this.#most / FEWER)
      throw error
    }
  }

  async #look(): Promise<void> {
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

  /** Once for each reason. The connection has told of what is wrong with itself. */
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

  /** To all rows at once: the log does not reach back to where this node is, or is another one. */
  async #jump(error: unknown): Promise<void> {
    if (!(error instanceof BehindError)) throw error
    const { connection, replica, feed, log } = this.#options
    // Nothing may be taken between the reading of the rows and their place here.
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

/** The log does not lead on from here. */
export class BehindError extends Error {
  override readonly name = 'BehindError'
}
