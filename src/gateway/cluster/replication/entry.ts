import { type Key, keyText, type Row, type RowChange } from '../../../store/journal/rows.ts'
import { MIGRATIONS_TABLE } from '../../../store/migrations.ts'

/** Position in the log: the number of an entry and its random mark. */
export interface Position {
  readonly n: number
  readonly mark: string
}

/** A row after an entry; `row` is undefined if it was deleted. */
export interface RowState {
  readonly table: string
  readonly key: Key
  readonly row: Row | undefined
}

/** Table with the position up to which a node has applied the log. */
export const POSITION_TABLE = 'replica_position'
export const SCHEMA_TABLE = 'replica_schema'
/** Tables that are not replicated: each node has its own rows. */
const OWN_TABLES: ReadonlySet<string> = new Set([
  MIGRATIONS_TABLE,
  POSITION_TABLE,
  SCHEMA_TABLE,
  'device_watch',
])

/** Whether a table is replicated to all nodes. */
export const isShared = (table: string): boolean => !OWN_TABLES.has(table)

/** One transaction on the records, as all nodes apply it. */
export interface Entry extends Position {
  /** Ids of the migrations that made its tables, as JSON. */
  readonly schema: string
  readonly rows: readonly RowState[]
}

export function statesOf(changes: readonly RowChange[]): RowState[] {
  return changes.map(({ table, key, after }) => ({ table, key, row: after }))
}

/**
 * Rows as parallel arrays for PostgreSQL. Keys and contents are JSON; the content of a deleted row is null.
 */
export interface Columns {
  readonly tables: readonly string[]
  readonly keys: readonly string[]
  readonly contents: readonly (string | null)[]
}

export function toColumns(
  rows: readonly RowState[],
): [tables: string[], keys: string[], contents: (string | null)[]] {
  return [
    rows.map(({ table }) => table),
    rows.map(({ key }) => keyText(key)),
    rows.map(({ row }) => (row ? JSON.stringify(row) : null)),
  ]
}

export function fromColumns({ tables, keys, contents }: Columns): RowState[] {
  return tables.map((table, at) => toState(table, keys[at] ?? '[]', contents[at] ?? null))
}

export function toState(table: string, key: string, content: string | null): RowState {
  return { table, key: JSON.parse(key), row: content === null ? undefined : JSON.parse(content) }
}
