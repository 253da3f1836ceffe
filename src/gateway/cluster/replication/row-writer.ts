import {
  fromCell,
  listTables,
  quote,
  type Row,
  type RowChange,
  sameRow,
  type Table,
  toRow,
} from '../../../store/journal/rows.ts'
import type { Connection, Statement } from '../../../store/sqlite.ts'
import { POSITION_TABLE, type Position, type RowState } from './entry.ts'

/** Table in which SQLite keeps AUTOINCREMENT counters. It has no triggers. */
export const SEQUENCES = 'sqlite_sequence'

interface TableStatements {
  readonly table: Table
  readonly get: Statement<unknown[], Record<string, unknown>>
  readonly put: Statement<unknown[]>
  readonly remove: Statement<unknown[]>
}

/**
 * Writes rows exactly as given, on its own connection. Foreign keys and triggers are off, because their
 * effects are among the given rows.
 */
export class RowWriter {
  readonly #connection: Connection
  readonly #tables: Map<string, TableStatements>

  constructor(connection: Connection) {
    connection.pragma('foreign_keys = OFF')
    this.#connection = connection
    const counted = hasSequences(connection) ? [SEQUENCE_TABLE] : []
    this.#tables = new Map(
      [...listTables(connection), ...counted].map((table) => [
        table.name,
        statementsFor(connection, table),
      ]),
    )
  }

  /** Writes all rows and the position in one transaction. Returns the changed rows. */
  write(rows: readonly RowState[], position?: Position): RowChange[] {
    return this.#connection
      .transaction(() => {
        // Read before any write: one row may replace another that is also in `rows`.
        const before = rows.map((state) => this.#read(state))
        for (const state of rows) this.#writeOne(state)
        if (position) this.#move(position)
        return rows.flatMap(({ table, key, row }, at) =>
          sameRow(before[at], row) ? [] : { table, key, before: before[at], after: row },
        )
      })
      .immediate()
  }

  /** Detects changed AUTOINCREMENT counters in the open transaction on `connection`. */
  sequencesSeenBy(connection: Connection): { changed(): RowState[] } {
    const read = () => (this.#tables.has(SEQUENCES) ? readSequences(connection) : [])
    const before = new Map(read().map(({ name, seq }) => [name, seq]))
    return {
      changed: () =>
        read()
          .filter(({ name, seq }) => before.get(name) !== seq)
          .map((row) => ({ table: SEQUENCES, key: [row.name], row: { ...row } })),
    }
  }

  close(): void {
    this.#connection.close()
  }

  #of({ table }: RowState): TableStatements {
    const found = this.#tables.get(table)
    if (found) return found
    throw new Error(`there is no table ${table}`)
  }

  #read(state: RowState): Row | undefined {
    const read = this.#of(state).get.get(...state.key.map(fromCell))
    return read && toRow(read)
  }

  #writeOne(state: RowState): void {
    const { row, key } = state
    const { table, put, remove } = this.#of(state)
    if (row && sameRow(this.#read(state), row)) return
    // `sqlite_sequence` has no key, so an insert would not replace the row.
    if (!row || table.name === SEQUENCES) remove.run(...key.map(fromCell))
    if (row) put.run(...table.columns.map((column) => fromCell(row[column] ?? null)))
  }

  #move({ n, mark }: Position): void {
    this.#connection
      .prepare(
        `INSERT INTO ${POSITION_TABLE} (one, n, mark) VALUES (1, ?, ?)
         ON CONFLICT (one) DO UPDATE SET n = excluded.n, mark = excluded.mark`,
      )
      .run(n, mark)
  }
}

const SEQUENCE_TABLE: Table = {
  name: SEQUENCES,
  columns: ['name', 'seq'],
  key: ['name'],
  hasRowid: true,
}

/** Whether the database has AUTOINCREMENT counters: only if one of its tables uses them. */
export function hasSequences(connection: Connection): boolean {
  const found = connection.prepare('SELECT 1 FROM sqlite_schema WHERE name = ?').get(SEQUENCES)
  return found !== undefined
}

export function readSequences(connection: Connection): { name: string; seq: number }[] {
  return connection
    .prepare<[], { name: string; seq: number }>(`SELECT name, seq FROM ${SEQUENCES}`)
    .all()
}

function statementsFor(connection: Connection, table: Table): TableStatements {
  const { name, columns, key } = table
  const where = key.map((column) => `${quote(column)} = ?`).join(' AND ')
  const cells = columns.map(quote).join(', ')
  const places = columns.map(() => '?').join(', ')
  const at = `main.${quote(name)}`
  return {
    table,
    get: connection.prepare(`SELECT ${cells} FROM ${at} WHERE ${where}`),
    // A row that this replaces was changed by the same entry, and is written after it.
    put: connection.prepare(`INSERT OR REPLACE INTO ${at} (${cells}) VALUES (${places})`),
    remove: connection.prepare(`DELETE FROM ${at} WHERE ${where}`),
  }
}
