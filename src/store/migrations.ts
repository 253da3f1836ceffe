import { StartError } from '../base/app-error.ts'
import type { Connection } from './sqlite.ts'

/** One step of a schema. The id never changes once a release has carried it. */
export interface Migration {
  /** Owner and number, such as `tunnels-1`. */
  readonly id: string
  readonly sql: string
}

const TABLE = 'CREATE TABLE IF NOT EXISTS schema_migrations (id TEXT PRIMARY KEY) STRICT'

export interface MigrateOptions {
  /** The schemas of all owners, each owner's steps in their order. */
  readonly migrations: readonly Migration[]
  readonly applicationId: number
  /** Called before the schema of a database with content changes. */
  readonly beforeUpdate?: () => void
}

/**
 * Applies the steps that `connection` still lacks, all of them or none.
 * Throws a StartError when the file carries steps that this program does not know.
 */
export function migrate(
  connection: Connection,
  { migrations, applicationId, beforeUpdate }: MigrateOptions,
): void {
  const applied = new Set(appliedIds(connection))
  refuseNewerSchema(applied, migrations)
  const pending = migrations.filter(({ id }) => !applied.has(id))
  if (pending.length === 0) return
  if (applied.size > 0) beforeUpdate?.()
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

function refuseNewerSchema(applied: Set<string>, migrations: readonly Migration[]): void {
  const known = new Set(migrations.map(({ id }) => id))
  const unknown = [...applied].filter((id) => !known.has(id))
  if (unknown.length === 0) return
  throw new StartError(
    `The database was written by a newer version of this program (it carries ${unknown.join(', ')}): start that version again, or put the backup from before the update in place.`,
  )
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
