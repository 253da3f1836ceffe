import { randomUUID } from 'node:crypto'
import { readRows } from '../../../store/journal/rows.ts'
import type { Migration } from '../../../store/migrations.ts'
import { openFile } from '../../../store/sqlite.ts'
import type { Statements } from '../postgres/postgres-session.ts'
import { isShared, type RowState } from './entry.ts'
import { appendUpgrade, keepRecords, readHead } from './record-log.ts'
import { schemaOf } from './record-schema.ts'
import { hasSequences, readSequences, SEQUENCES } from './row-writer.ts'

/** Rows in one statement. */
const PAGE = 1_000

/** The target database already contains records. Two sites cannot be merged. */
export class NotEmptyError extends Error {
  override readonly name = 'NotEmptyError'
}

/** Reads all rows and AUTOINCREMENT counters of a gateway's own database. No process may have it open. */
export function readOwnRecords(path: string): RowState[] {
  const connection = openFile(path)
  try {
    const rows: RowState[] = []
    for (const [table, keyed] of readRows(connection, isShared)) {
      for (const { key, row } of keyed.values()) rows.push({ table, key, row })
    }
    const counters = hasSequences(connection) ? readSequences(connection) : []
    for (const row of counters) rows.push({ table: SEQUENCES, key: [row.name], row: { ...row } })
    return rows
  } finally {
    connection.close()
  }
}

/**
 * Writes all rows into an empty database, in the open transaction. Throws a NotEmptyError if the database has
 * rows, or if a gateway has used it.
 */
export async function importRecords(
  statements: Statements,
  { rows, migrations }: { rows: readonly RowState[]; migrations: readonly Migration[] },
  onProgress: (done: number) => void = () => {},
): Promise<void> {
  const head = await readHead(statements, { lock: true })
  const [found] = await statements.query('SELECT 1 FROM record_rows LIMIT 1')
  if (head.n !== 0 || found) throw new NotEmptyError('the database already contains records')
  for (let at = 0; at < rows.length; at += PAGE) {
    await keepRecords(statements, rows.slice(at, at + PAGE))
    onProgress(Math.min(rows.length, at + PAGE))
  }
  // No node has a position before this entry, so each new node loads all rows.
  const schema = schemaOf(migrations)
  await appendUpgrade(statements, {
    ...{ seen: head, mark: randomUUID(), node: '', schema },
    rows: [],
  })
}
