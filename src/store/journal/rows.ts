import type { Connection } from '../sqlite.ts'

/** Change of one row. `before` and `after` are undefined if the row does not exist. */
export interface RowChange {
  readonly table: string
  readonly key: Key
  readonly before: Row | undefined
  readonly after: Row | undefined
}

/** A value as stored by SQLite. A blob is an object, so that a row can be written as JSON. */
export type Cell = string | number | null | { readonly base64: string }
export type Row = Readonly<Record<string, Cell>>
/** Values of a table's primary key. */
export type Key = readonly Cell[]
/** All rows of a database, by table and by key as JSON. */
export type Rows = Map<string, Map<string, KeyedRow>>

export interface KeyedRow {
  readonly key: Key
  readonly row: Row
}

/** A table, as needed to read and write its rows. */
export interface Table {
  readonly name: string
  readonly columns: readonly string[]
  /** Columns of the primary key. */
  readonly key: readonly string[]
  /** False for WITHOUT ROWID. */
  readonly hasRowid: boolean
}

/**
 * Returns the tables of all owners. Throws if a table has no primary key, because its rows could not be told
 * apart.
 */
export function listTables(connection: Connection): Table[] {
  const tables = connection
    .prepare<[], { name: string; wr: number }>(
      `SELECT name, wr FROM pragma_table_list
       WHERE schema = 'main' AND type = 'table' AND name NOT LIKE 'sqlite@_%' ESCAPE '@'
       ORDER BY name`,
    )
    .all()
  return tables.map(({ name, wr }) => {
    const columns = connection
      .prepare<[string], { name: string; pk: number }>(
        'SELECT name, pk FROM pragma_table_info(?) ORDER BY cid',
      )
      .all(name)
    const key = columns.filter(({ pk }) => pk > 0).sort((a, b) => a.pk - b.pk)
    if (key.length === 0) throw new Error(`the table ${name} needs a primary key`)
    return {
      name,
      columns: columns.map((column) => column.name),
      key: key.map((column) => column.name),
      hasRowid: wr === 0,
    }
  })
}

/** Reads all rows of the tables selected by `isMeant`, including the list of applied migrations. */
export function readRows(
  connection: Connection,
  isMeant: (table: string) => boolean = () => true,
): Rows {
  const rows: Rows = new Map()
  for (const { name, columns, key, hasRowid } of listTables(connection)) {
    if (!isMeant(name)) continue
    const order = hasRowid ? 'rowid' : key.map(quote).join(', ')
    const select = connection.prepare<[], Record<string, unknown>>(
      `SELECT ${columns.map(quote).join(', ')} FROM main.${quote(name)} ORDER BY ${order}`,
    )
    const kept = new Map<string, KeyedRow>()
    for (const read of select.iterate()) {
      const row = toRow(read)
      const values = key.map((column) => row[column] ?? null)
      kept.set(keyText(values), { key: values, row })
    }
    rows.set(name, kept)
  }
  return rows
}

/** Restores rows to their state before these changes. Call it within a transaction. */
export function restoreRows(connection: Connection, changes: readonly RowChange[]): void {
  const putBack = takeTriggersAway(connection)
  const keys = new Map(listTables(connection).map(({ name, key }) => [name, key]))
  for (const { table, key, after } of changes) {
    if (!after) continue
    const where = (keys.get(table) ?? []).map((column) => `${quote(column)} = ?`).join(' AND ')
    const remove = connection.prepare(`DELETE FROM ${quote(table)} WHERE ${where}`)
    remove.run(...key.map(fromCell))
  }
  for (const { table, before } of changes) if (before) insertRow(connection, table, before)
  putBack()
}

/**
 * Removes all triggers and returns a function that restores them. Triggers must not run for restored rows:
 * their results are among the rows, and some triggers forbid such changes.
 */
export function takeTriggersAway(connection: Connection): () => void {
  const triggers = connection
    .prepare<[], { name: string; sql: string }>(
      `SELECT name, sql FROM main.sqlite_schema WHERE type = 'trigger'`,
    )
    .all()
  for (const { name } of triggers) connection.exec(`DROP TRIGGER main.${quote(name)}`)
  return () => {
    for (const { sql } of triggers) connection.exec(sql)
  }
}

/** Replaces rows that conflict with the new row. */
export function insertRow(connection: Connection, table: string, row: Row): void {
  const columns = Object.keys(row)
  const places = columns.map(() => '?').join(', ')
  connection
    .prepare(
      `INSERT OR REPLACE INTO ${quote(table)} (${columns.map(quote).join(', ')}) VALUES (${places})`,
    )
    .run(...Object.values(row).map(fromCell))
}

/** Whether both have the same rows with the same values. */
export function sameRows(a: Rows, b: Rows): boolean {
  const names = new Set([...a.keys(), ...b.keys()])
  return [...names].every((name) => {
    const ours = a.get(name)
    const theirs = b.get(name)
    if ((ours?.size ?? 0) !== (theirs?.size ?? 0)) return false
    for (const [key, { row }] of ours ?? []) {
      if (!sameRow(row, theirs?.get(key)?.row)) return false
    }
    return true
  })
}

export function sameRow(a: Row | undefined, b: Row | undefined): boolean {
  if (!a || !b) return a === b
  const names = Object.keys(a)
  return names.length === Object.keys(b).length && names.every((name) => sameCell(a[name], b[name]))
}

export function sameCell(a: Cell | undefined, b: Cell | undefined): boolean {
  const isBlob = typeof a === 'object' && a && typeof b === 'object' && b
  return isBlob ? a.base64 === b.base64 : a === b
}

/** Converts a row that was read. Throws for a number that JSON would round. */
export function toRow(read: Readonly<Record<string, unknown>>): Row {
  const row: Record<string, Cell> = {}
  for (const name in read) row[name] = toCell(read[name])
  return row
}

export function toCell(value: unknown): Cell {
  if (Buffer.isBuffer(value)) return { base64: value.toString('base64') }
  if (typeof value === 'number' && Number.isInteger(value) && !Number.isSafeInteger(value)) {
    throw new Error(`${value} is too large for a stored number`)
  }
  return value as Cell
}

/** Returns the value of a cell for SQLite. */
export function fromCell(cell: Cell): string | number | null | Buffer {
  return typeof cell === 'object' && cell !== null ? Buffer.from(cell.base64, 'base64') : cell
}

export function keyText(key: Key): string {
  return JSON.stringify(key)
}

/** Quotes a name of a table or column for SQL. */
export function quote(name: string): string {
  return `"${name.replaceAll('"', '""')}"`
}
