import { insertRow, listTables, quote, type Rows, takeTriggersAway } from './journal/rows.ts'
import { MIGRATIONS_TABLE, type Migration, openSchema, requireKnown } from './migrations.ts'
import type { Connection } from './sqlite.ts'

export interface RebuildOptions {
  readonly rows: Rows
  /** Number of the change after which the rows were so. */
  readonly n: number
  readonly migrations: readonly Migration[]
  readonly applicationId: number
}

export interface Rebuilt {
  /** In memory. */
  readonly connection: Connection
  /** How many rows would not fit: of no use without others, or of no table that there is. */
  readonly lost: number
}

/** Makes a database of rows, with the schema that is noted among them. */
export function rebuild({ rows, n, migrations, applicationId }: RebuildOptions): Rebuilt {
  const noted = [...(rows.get(MIGRATIONS_TABLE)?.values() ?? [])].map(({ row }) => String(row.id))
  requireKnown(noted, migrations)
  const steps = noted.length === 0 ? migrations : migrations.filter(({ id }) => noted.includes(id))
  const connection = openSchema(steps, applicationId)
  connection.pragma('foreign_keys = OFF')
  const putBack = takeTriggersAway(connection)
  let lost = 0
  for (const { name } of listTables(connection)) {
    if (name !== MIGRATIONS_TABLE) connection.exec(`DELETE FROM ${quote(name)}`)
  }
  for (const [table, kept] of rows) {
    if (table === MIGRATIONS_TABLE) continue
    for (const { row } of kept.values()) {
      try {
        insertRow(connection, table, row)
      } catch {
        lost += 1
      }
    }
  }
  lost += dropOrphans(connection)
  putBack()
  connection.pragma('foreign_keys = ON')
  connection.pragma(`user_version = ${n}`)
  return { connection, lost }
}

interface Reference {
  readonly id: number
  readonly table: string
  readonly from: string
  readonly to: string | null
}

/** Takes away what refers to rows that are missing, and then what refers to that. */
function dropOrphans(connection: Connection): number {
  const deletes = listTables(connection).flatMap(({ name }) => orphansOf(connection, name))
  let dropped = 0
  for (let round = -1; round !== dropped; ) {
    round = dropped
    for (const sql of deletes) dropped += connection.prepare(sql).run().changes
  }
  return dropped
}

/** Statements that delete the rows of a table which refer to nothing, one for each foreign key. */
function orphansOf(connection: Connection, child: string): string[] {
  const references = connection.pragma(`foreign_key_list(${quote(child)})`) as Reference[]
  return [...new Set(references.map(({ id }) => id))].map((id) => {
    const columns = references.filter((reference) => reference.id === id)
    const isSet = columns.map(({ from }) => `${quote(from)} IS NOT NULL`)
    const isParent = columns.map(({ from, to }) => {
      return `parent.${quote(to ?? from)} = ${quote(child)}.${quote(from)}`
    })
    const parent = quote(columns[0]?.table ?? '')
    return (
      `DELETE FROM ${quote(child)} WHERE ${isSet.join(' AND ')} AND NOT EXISTS ` +
      `(SELECT 1 FROM ${parent} AS parent WHERE ${isParent.join(' AND ')})`
    )
  })
}
