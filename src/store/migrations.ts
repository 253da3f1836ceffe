import type { Database as Connection } from 'better-sqlite3'
import { StartError } from '../base/app-error.ts'

/** One step of a schema. The id never changes once a release has carried it. */
export interface Migration {
  /** Owner and number, such as `tunnels-1`. */
  readonly id: string
  readonly sql: string
}

const TABLE = 'CREATE TABLE IF NOT EXISTS schema_migrations (id TEXT PRIMARY KEY) STRICT'

/**
 * The migrations that `connection` still lacks, in their order.
 * Throws a StartError when the file carries steps that this program does not know.
 */
export function pendingMigrations(
  connection: Connection,
  migrations: readonly Migration[],
): Migration[] {
  const applied = appliedIds(connection)
  const known = new Set(migrations.map(({ id }) => id))
  const unknown = applied.filter((id) => !known.has(id))
  if (unknown.length > 0) {
    throw new StartError(
      `The database was written by a newer version of this program (it carries ${unknown.join(', ')}): start that version again, or put the backup in place that was made before the update.`,
    )
  }
  return migrations.filter(({ id }) => !applied.includes(id))
}

/** Applies all of `pending` or none, together with the mark that says whose file this is. */
export function migrate(
  connection: Connection,
  pending: readonly Migration[],
  applicationId: number,
): void {
  const apply = connection.transaction(() => {
    connection.pragma(`application_id = ${applicationId}`)
    connection.exec(TABLE)
    const remember = connection.prepare('INSERT INTO schema_migrations (id) VALUES (?)')
    for (const { id, sql } of pending) {
      connection.exec(sql)
      remember.run(id)
    }
  })
  apply.immediate()
}

function appliedIds(connection: Connection): string[] {
  const table = connection
    .prepare(`SELECT 1 FROM sqlite_schema WHERE type = 'table' AND name = 'schema_migrations'`)
    .get()
  if (!table) return []
  return connection
    .prepare<[], string>('SELECT id FROM schema_migrations ORDER BY rowid')
    .pluck()
    .all()
}
