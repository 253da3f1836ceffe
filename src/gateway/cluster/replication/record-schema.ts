import { randomUUID } from 'node:crypto'
import { type Rows, readRows, takeTriggersAway } from '../../../store/journal/rows.ts'
import { type Migration, migrate, openSchema } from '../../../store/migrations.ts'
import type { Connection } from '../../../store/sqlite.ts'
import type { Statements } from '../postgres/postgres-session.ts'
import { isShared, type RowState } from './entry.ts'
import { appendUpgrade, readAllRows, readHead } from './record-log.ts'
import { RowWriter } from './row-writer.ts'

/** Ids of the migrations as JSON, the same text on all nodes. */
export function schemaOf(migrations: readonly Migration[]): string {
  return JSON.stringify(migrations.map(({ id }) => id))
}

/** `newer`: includes a migration that this version does not know. */
export type SchemaVerdict = 'same' | 'older' | 'newer'

export function compareSchemas(theirs: string, migrations: readonly Migration[]): SchemaVerdict {
  if (theirs === schemaOf(migrations)) return 'same'
  const known = new Set(migrations.map(({ id }) => id))
  const ids: string[] = JSON.parse(theirs)
  return ids.every((id) => known.has(id)) ? 'older' : 'newer'
}

export interface SchemaOptions {
  readonly migrations: readonly Migration[]
  readonly applicationId: number
  readonly node: string
}

/**
 * Upgrades all rows to the schema of this version, as one entry in the open transaction. No other node
 * appends meanwhile. Returns how the old schema compared.
 */
export async function upgradeRecords(
  statements: Statements,
  { migrations, applicationId, node }: SchemaOptions,
): Promise<SchemaVerdict> {
  const head = await readHead(statements, { lock: true })
  const verdict = compareSchemas(head.schema, migrations)
  if (verdict !== 'older') return verdict
  const rows = changedByUpgrade(await readAllRows(statements), JSON.parse(head.schema), {
    migrations,
    applicationId,
  })
  const schema = schemaOf(migrations)
  await appendUpgrade(statements, { seen: head, mark: randomUUID(), node, schema, rows })
  return verdict
}

/** Returns the rows that the missing migrations change. */
function changedByUpgrade(
  rows: readonly RowState[],
  applied: readonly string[],
  { migrations, applicationId }: Pick<SchemaOptions, 'migrations' | 'applicationId'>,
): RowState[] {
  const taken = migrations.filter(({ id }) => applied.includes(id))
  const connection = openSchema(taken, applicationId)
  try {
    fillRecords(connection, rows)
    const before = readRows(connection, isShared)
    migrate(connection, { migrations, applicationId })
    return difference(before, readRows(connection, isShared))
  } finally {
    connection.close()
  }
}

/** Writes rows into an empty database. Their triggers do not run: what they did is among the rows. */
export function fillRecords(connection: Connection, rows: readonly RowState[]): void {
  const putBack = takeTriggersAway(connection)
  new RowWriter(connection).write(rows)
  putBack()
  connection.pragma('foreign_keys = ON')
}

function difference(before: Rows, after: Rows): RowState[] {
  const states: RowState[] = []
  for (const [table, keyed] of before) {
    for (const [text, { key }] of keyed) {
      if (!after.get(table)?.has(text)) states.push({ table, key, row: undefined })
    }
  }
  for (const [table, keyed] of after) {
    for (const [text, { key, row }] of keyed) {
      const was = before.get(table)?.get(text)?.row
      if (JSON.stringify(was) !== JSON.stringify(row)) states.push({ table, key, row })
    }
  }
  return states
}
