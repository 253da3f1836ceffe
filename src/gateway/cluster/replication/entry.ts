import { type Key, keyText, type Row, type RowChange } from '../../../store/journal/rows.ts'
import { MIGRATIONS_TABLE } from '../../../store/migrations.ts'

/** A place in the log: a number, and what was drawn for that entry alone. */
export interface Position {
  readonly n: number
  readonly mark: string
}

/** A row as an entry leaves it; without one it is gone. */
export interface RowState {
  readonly table: string
  readonly key: Key
  readonly row: Row | undefined
}

/** Where a node keeps how far it is. */
export const POSITION_TABLE = 'replica_position'
export const SCHEMA_TABLE = 'replica_schema'
/** What no entry says: each node has its own. */
const OWN_TABLES: ReadonlySet<string> = new Set([
  MIGRATIONS_TABLE,
  POSITION_TABLE,
  SCHEMA_TABLE,
  'device_watch',
])

/** Whether all nodes have the rows of a table in common. */
export const isShared = (table: string): boolean => !OWN_TABLES.has(table)

/** One transaction on the records, as all nodes apply it. */
export interface Entry extends Position {
  /** Ids of the steps that made the tables that it is for, as JSON. */
  readonly schema: string
  readonly rows: readonly RowState[]
}

export function statesOf(changes: readonly RowChange[]): RowState[] {
  return changes.map(({ table, key, after }) => ({ table, key, row: after }))
}

/** Rows as PostgreSQL has them, side by side: keys and rows as JSON, null for what is gone. */
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
