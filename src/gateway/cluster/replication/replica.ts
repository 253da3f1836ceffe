import { rmSync } from 'node:fs'
import type { Logger } from '../../../base/logger.ts'
import { RowRecorder } from '../../../store/journal/row-recorder.ts'
import { quote, type RowChange, readRows } from '../../../store/journal/rows.ts'
import { type Migration, migrate, openSchema } from '../../../store/migrations.ts'
import { type Connection, openFile, type Statement } from '../../../store/sqlite.ts'
import {
  type Entry,
  isShared,
  POSITION_TABLE,
  type Position,
  type RowState,
  SCHEMA_TABLE,
  statesOf,
} from './entry.ts'
import { schemaOf } from './record-schema.ts'
import { RowWriter } from './row-writer.ts'

export interface ReplicaOptions {
  readonly path: string
  readonly migrations: readonly Migration[]
  readonly applicationId: number
  readonly log: Logger
}

/** Results or errors of tried changes, and all rows that they change together. */
export interface Attempt<T> {
  readonly outcomes: readonly PromiseSettledResult<T>[]
  readonly rows: readonly RowState[]
}

/**
 * A node's own copy of the records, in SQLite. All reads use it. It may be lost at any time, because
 * PostgreSQL has all records. So no write waits for the disk.
 *
 * INVARIANT: the rows are those after the entry of `position`, or there is no position.
 */
export class Replica {
  readonly #connection: Connection
  /** Writes rows without triggers: their effects are already among the rows. */
  readonly #writer: RowWriter
  readonly #recorder: RowRecorder
  readonly #position: Statement<[], Position>
  readonly schema: string

  constructor(connection: Connection, writer: RowWriter, { migrations }: ReplicaOptions) {
    this.#connection = connection
    this.#writer = writer
    this.schema = schemaOf(migrations)
    this.#position = connection.prepare(`SELECT n, mark FROM ${POSITION_TABLE}`)
    this.#recorder = new RowRecorder(connection)
    this.#recorder.start()
  }

  /** Opens the file. A file that is damaged or of another version is replaced by an empty copy. */
  static open(options: ReplicaOptions): Replica {
    try {
      const connection = openReplica(options)
      if (connection) return withWriter(connection, options)
    } catch (error) {
      options.log.warn({ err: error }, 'the local copy of the records is damaged: rebuilding it')
    }
    for (const part of ['', '-wal', '-shm']) rmSync(`${options.path}${part}`, { force: true })
    return withWriter(createReplica(options), options)
  }

  /** Position of the last applied entry; undefined before the first snapshot. */
  get position(): Position | undefined {
    return this.#position.get()
  }

  get inChange(): boolean {
    return this.#connection.inTransaction
  }

  prepare<Parameters extends unknown[], Row = unknown>(sql: string): Statement<Parameters, Row> {
    return this.#connection.prepare(sql) as Statement<Parameters, Row>
  }

  /**
   * Runs changes one after the other, then rolls all of them back. A change that throws leaves no rows for
   * the next.
   */
  attempt<T>(changes: readonly (() => T)[]): Attempt<T> {
    this.#connection.exec('BEGIN IMMEDIATE')
    try {
      this.#recorder.clear()
      const sequences = this.#writer.sequencesSeenBy(this.#connection)
      const outcomes = changes.map((change) => this.#tryOne(change))
      const states = statesOf(this.#recorder.changes())
      const own = states.find(({ table }) => !isShared(table))
      if (own) throw new Error(`rows of ${own.table} belong to this node: use Database.write()`)
      return { outcomes, rows: [...states, ...sequences.changed()] }
    } finally {
      if (this.#connection.inTransaction) this.#connection.exec('ROLLBACK')
    }
  }

  #tryOne<T>(change: () => T): PromiseSettledResult<T> {
    try {
      return { status: 'fulfilled', value: this.#connection.transaction(change)() }
    } catch (reason) {
      return { status: 'rejected', reason }
    }
  }

  /** Changes rows that are not shared with other nodes. Throws if the change includes shared rows. */
  writeOwn<T>(change: () => T): T {
    return this.#connection
      .transaction(() => {
        this.#recorder.clear()
        const result = change()
        const foreign = this.#recorder.changes().find(({ table }) => isShared(table))
        if (foreign) throw new Error(`rows of ${foreign.table} are shared: use Database.change()`)
        return result
      })
      .immediate()
  }

  /** Applies an entry and returns the changed rows; undefined if it is not the next entry. */
  apply({ n, mark, rows }: Omit<Entry, 'schema'>): RowChange[] | undefined {
    if (this.position?.n !== n - 1) return undefined
    return this.#writer.write(rows, { n, mark })
  }

  /** Replaces all shared rows and returns the changes. */
  load(rows: readonly RowState[], position: Position): RowChange[] {
    const before = readRows(this.#connection, isShared)
    const kept = new Set(rows.map(({ table, key }) => `${table} ${JSON.stringify(key)}`))
    const gone: RowState[] = []
    for (const [table, keyed] of before) {
      for (const { key } of keyed.values()) {
        if (!kept.has(`${table} ${JSON.stringify(key)}`)) gone.push({ table, key, row: undefined })
      }
    }
    return this.#writer.write([...gone, ...rows], position)
  }

  close(): void {
    this.#writer.close()
    this.#connection.close()
  }
}

/** Undefined if the file has no sound copy of this version. */
function openReplica(options: ReplicaOptions): Connection | undefined {
  const connection = openFile(options.path)
  try {
    const known = connection
      .prepare(`SELECT 1 FROM sqlite_schema WHERE name = ?`)
      .get(POSITION_TABLE)
    const version = known && connection.prepare(`SELECT schema FROM ${SCHEMA_TABLE}`).pluck().get()
    const isSound = () => connection.pragma('quick_check', { simple: true }) === 'ok'
    if (version === schemaOf(options.migrations) && isSound()) return connection
  } catch (error) {
    connection.close()
    throw error
  }
  connection.close()
  return undefined
}

function createReplica(options: ReplicaOptions): Connection {
  const connection = openFile(options.path)
  migrate(connection, options)
  connection.transaction(() => {
    // Triggers run only for changes that are tried here, not for entries.
    for (const { name } of triggersOf(connection)) connection.exec(`DROP TRIGGER ${quote(name)}`)
    connection.exec(`CREATE TABLE ${POSITION_TABLE} (
        one INTEGER PRIMARY KEY CHECK (one = 1), n INTEGER NOT NULL, mark TEXT NOT NULL
      ) STRICT;
      CREATE TABLE ${SCHEMA_TABLE} (schema TEXT PRIMARY KEY) STRICT, WITHOUT ROWID`)
    const of = connection.prepare(`INSERT INTO ${SCHEMA_TABLE} VALUES (?)`)
    of.run(schemaOf(options.migrations))
  })()
  return connection
}

function withWriter(connection: Connection, options: ReplicaOptions): Replica {
  for (const pragma of ['journal_mode = WAL', 'synchronous = NORMAL', 'foreign_keys = ON']) {
    connection.pragma(pragma)
  }
  const expected = openSchema(options.migrations, options.applicationId)
  try {
    for (const { sql } of triggersOf(expected)) {
      connection.exec(sql.replace(/^CREATE TRIGGER/, 'CREATE TEMP TRIGGER'))
    }
  } finally {
    expected.close()
  }
  return new Replica(connection, new RowWriter(openFile(options.path)), options)
}

function triggersOf(connection: Connection): { name: string; sql: string }[] {
  return connection
    .prepare<[], { name: string; sql: string }>(
      `SELECT name, sql FROM main.sqlite_schema WHERE type = 'trigger'`,
    )
    .all()
}
