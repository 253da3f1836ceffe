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

/** There is something in the database already: two sites do not become one. */
export class NotEmptyError extends Error {
  override readonly name = 'NotEmptyError'
}

/** All rows of a gateway's own database, which nobody has open, with what counts them. */
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
 * Puts all rows into a database that has none, in the transaction that is open. Throws a NotEmptyError
 * when there are some, or a gateway has been there.
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
  // Who comes takes all rows: no node has been here before this entry.
  const schema = schemaOf(migrations)
  await appendUpgrade(statements, {
    ...{ seen: head, mark: randomUUID(), node: '', schema },
    rows: [],
  })
}
