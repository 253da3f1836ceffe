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

/** Where SQLite counts the rows of tables that give no number twice. It has no triggers. */
export const SEQUENCES = 'sqlite_sequence'

interface TableStatements {
  readonly table: Table
  readonly get: Statement<unknown[], Record<string, unknown>>
  readonly put: Statement<unknown[]>
  readonly remove: Statement<unknown[]>
}

/**
 * Writes rows as they are told, on a connection of its own: without foreign keys, and without the
 * triggers of the tables, because what follows from a row is told, too.
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

  /** All of it and the position, or nothing; answers what changed. */
  write(rows: readonly RowState[], position?: Position): RowChange[] {
    return this.#connection
      .transaction(() => {
        // Before anything changes: what is pushed out by one row is told by another.
        const before = rows.map((state) => this.#read(state))
        for (const state of rows) this.#writeOne(state)
        if (position) this.#move(position)
        return rows.flatMap(({ table, key, row }, at) =>
          sameRow(before[at], row) ? [] : { table, key, before: before[at], after: row },
        )
      })
      .immediate()
  }

  /** What counters of rows become in the transaction that is open on `connection`. */
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
    // Where SQLite counts has no key that would replace the row.
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

/** There are some when a table asks for them. */
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
    // What stands in its way was changed by the same entry, and is written after it.
    put: connection.prepare(`INSERT OR REPLACE INTO ${at} (${cells}) VALUES (${places})`),
    remove: connection.prepare(`DELETE FROM ${at} WHERE ${where}`),
  }
}
