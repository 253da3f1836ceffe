import { StartError } from '../base/app-error.ts'
import { listTables } from './journal/rows.ts'
import { type Connection, openMemory } from './sqlite.ts'

/** One step of a schema. The id never changes after a release. */
export interface Migration {
  /** Owner and number, for example `tunnels-1`. */
  readonly id: string
  readonly sql: string
  /** Name of a table in this step whose rows are added and never changed, and may be many. */
  readonly trail?: string
}

export const MIGRATIONS_TABLE = 'schema_migrations'
const TABLE = `CREATE TABLE IF NOT EXISTS ${MIGRATIONS_TABLE} (id TEXT PRIMARY KEY) STRICT`

/**
 * Changes no table. Marks that the rows are also in a journal. A version without journal support would change
 * rows without it, so it has to refuse this step as unknown.
 */
export const JOURNAL_MIGRATION: Migration = { id: 'journal-1', sql: '' }

/** The file has all migrations that this program knows, and more. */
export class NewerVersionError extends StartError {}

export interface MigrateOptions {
  /** The schemas of all owners. Each owner's steps are in order. */
  readonly migrations: readonly Migration[]
  readonly applicationId: number
  /** Called before the schema of a database with content changes. */
  readonly beforeUpdate?: () => void
  /** Called at the end of the transaction. */
  readonly atEnd?: () => void
}

/**
 * Applies the missing steps, all or nothing. Returns false if no step was missing. Throws a StartError if the
 * file has steps that this program does not know.
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

/**
 * Returns an in-memory database with the schema of these steps. It has only the rows that the steps insert.
 */
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
 * Compares the schema of a database with the result of its recorded steps. `altered`: only the text differs,
 * so the rows can be used. `foreign`: tables or columns differ.
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
 * Throws a StartError if a newer version has written the file. Such a file has all steps of this version, and
 * more. If a known step is missing and an unknown one is there, the name of a step is damaged: throws an
 * Error.
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

/** Returns the ids of the applied steps, in order. */
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
