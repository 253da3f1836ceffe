import { StartError } from '../base/app-error.ts'
import { listTables } from './journal/rows.ts'
import { type Connection, openMemory } from './sqlite.ts'

/** One step of a schema. The id never changes once a release has carried it. */
export interface Migration {
  /** Owner and number, such as `tunnels-1`. */
  readonly id: string
  readonly sql: string
  /** The name of a table in it whose rows are added and never changed, and that may hold many. */
  readonly trail?: string
}

export const MIGRATIONS_TABLE = 'schema_migrations'
const TABLE = `CREATE TABLE IF NOT EXISTS ${MIGRATIONS_TABLE} (id TEXT PRIMARY KEY) STRICT`

/**
 * Changes no table: says that the rows stand in a journal, too. A version that knows of none would
 * write past it, and refuses this step as one of a newer version.
 */
export const JOURNAL_MIGRATION: Migration = { id: 'journal-1', sql: '' }

/** The file carries all steps that this program knows, and others. */
export class NewerVersionError extends StartError {}

export interface MigrateOptions {
  /** The schemas of all owners, each owner's steps in their order. */
  readonly migrations: readonly Migration[]
  readonly applicationId: number
  /** Called before the schema of a database with content changes. */
  readonly beforeUpdate?: () => void
  /** Called at the end of the transaction. */
  readonly atEnd?: () => void
}

/**
 * Applies the steps that `connection` still lacks, all of them or none; false when there were none.
 * Throws a StartError when the file carries steps that this program does not know.
 */
export function migrate(
  connection: Connection,
  { migrations, applicationId, beforeUpdate, atEnd }: MigrateOptions,
): boolean {
  const applied = new Set(appliedIds(connection))
  requireKnown([...applied], migrations)
  const pending = migrations.filter(({ id }) => !applied.has(id))
  if (pending.length === 0) return false
  if (applied.size > 0) beforeUpdate?.()
  const apply = connection.transaction(() => {
    connection.pragma(`application_id = ${applicationId}`)
    connection.exec(TABLE)
    const remember = connection.prepare(`INSERT INTO ${MIGRATIONS_TABLE} (id) VALUES (?)`)
    for (const { id, sql } of pending) {
      connection.exec(sql)
      remember.run(id)
    }
    atEnd?.()
  })
  apply.immediate()
  return true
}

export function trailsOf(migrations: readonly Migration[]): ReadonlySet<string> {
  return new Set(migrations.flatMap(({ trail }) => trail ?? []))
}

/** A database in memory with the schema after these steps, and no rows but what the steps insert. */
export function openSchema(migrations: readonly Migration[], applicationId: number): Connection {
  const connection = openMemory()
  try {
    migrate(connection, { migrations, applicationId })
    return connection
  } catch (error) {
    connection.close()
    throw error
  }
}

/**
 * Holds the schema of a database against what its noted steps make. `altered`: only its text differs,
 * so that the rows can be taken over; `foreign`: there are other tables or columns.
 */
export function compareSchema(
  connection: Connection,
  expected: Connection,
): 'same' | 'altered' | 'foreign' {
  const shape = (it: Connection) =>
    JSON.stringify(listTables(it).map(({ name, columns }) => [name, columns]))
  if (shape(connection) !== shape(expected)) return 'foreign'
  return schemaText(connection) === schemaText(expected) ? 'same' : 'altered'
}

function schemaText(connection: Connection): string {
  const parts = connection
    .prepare<[], { sql: string }>(
      `SELECT type, name, tbl_name, sql FROM sqlite_schema
       WHERE name NOT LIKE 'sqlite@_%' ESCAPE '@' ORDER BY type, name`,
    )
    .all()
  return JSON.stringify(parts.map((part) => ({ ...part, sql: part.sql.replace(/\s+/g, ' ') })))
}

/**
 * Throws a StartError when a newer version has written the file: it knows all that this one knows, and
 * more. A step that nobody knows beside one of ours that is missing is a step whose name is damaged.
 */
export function requireKnown(applied: readonly string[], migrations: readonly Migration[]): void {
  const known = new Set(migrations.map(({ id }) => id))
  const unknown = applied.filter((id) => !known.has(id))
  if (unknown.length === 0) return
  if (migrations.some(({ id }) => !applied.includes(id))) {
    throw new Error(`unknown migrations: ${unknown.join(', ')}`)
  }
  throw new NewerVersionError(
    `A newer version of this program wrote the database (migrations ${unknown.join(', ')}). Start that version, or restore the backup from before the update and delete the file that ends in .journal.`,
  )
}

/** The ids of the steps that a database carries, in the order in which they were applied. */
export function appliedIds(connection: Connection): string[] {
  const table = connection
    .prepare(`SELECT 1 FROM sqlite_schema WHERE type = 'table' AND name = ?`)
    .get(MIGRATIONS_TABLE)
  if (!table) return []
  return connection
    .prepare<[], string>(`SELECT id FROM ${MIGRATIONS_TABLE} ORDER BY rowid`)
    .pluck()
    .all()
}
