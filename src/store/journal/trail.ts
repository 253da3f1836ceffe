import { hash } from 'node:crypto'
import type { Connection } from '../sqlite.ts'
import {
  type Key,
  keyText,
  listTables,
  quote,
  type Row,
  type RowChange,
  type Rows,
  readRows,
  toCell,
} from './rows.ts'

/**
 * A trail is a table whose rows are added and never changed, such as an audit trail. It may hold thousands of
 * rows. If they were in the journal, each new journal would have to write them, and each start would have to
 * read them.
 *
 * So a journal contains the sum of their digests, and only the rows since the newest backup. Backup and
 * journal together are complete. The sum proves this for any copy of the rows.
 */
export type TrailVerb =
  | readonly ['add', table: string, key: Key, row: Row]
  /** With the digest of the removed row. */
  | readonly ['shed', table: string, key: Key, digest: string]

/** Changes of trails in one transaction. */
export interface TrailChange {
  readonly n: number
  readonly trail: readonly TrailVerb[]
}

/** Content of a database. */
export interface DatabaseState {
  /** Number of its last change. */
  readonly n: number
  /** All rows, without trails. */
  readonly rows: Rows
  /** Sum of the rows of trails. */
  readonly sum: bigint
}

/** 64 bits in hex: sums are 64-bit numbers. */
const DIGEST_CHARS = 16

export function isTrailVerb(verb: readonly unknown[]): verb is TrailVerb {
  return verb[0] === 'add' || verb[0] === 'shed'
}

export function toTrailVerbs({ table, key, before, after }: RowChange): TrailVerb[] {
  const shed: TrailVerb[] = before
    ? [['shed', table, key, digestOf(table, Object.values(before))]]
    : []
  return after ? [...shed, ['add', table, key, after]] : shed
}

/** Returns the sum after these changes. */
export function addUp(sum: bigint, verbs: readonly TrailVerb[]): bigint {
  const change = verbs.reduce((total, verb) => {
    return verb[0] === 'add'
      ? total + toNumber(digestOf(verb[1], Object.values(verb[3])))
      : total - toNumber(verb[3])
  }, 0n)
  return BigInt.asUintN(64, sum + change)
}

/** Returns the sum of all rows, which does not depend on their order. */
export function sumOfRows(rows: Rows): bigint {
  let sum = 0n
  for (const [table, kept] of rows) {
    for (const { row } of kept.values()) sum += toNumber(digestOf(table, Object.values(row)))
  }
  return BigInt.asUintN(64, sum)
}

export function readState(connection: Connection, trails: ReadonlySet<string>): DatabaseState {
  return {
    n: connection.pragma('user_version', { simple: true }) as number,
    rows: readRows(connection, (table) => !trails.has(table)),
    sum: readSum(connection, trails),
  }
}

/** Returns the sum of the rows of trails in a database. Reads row by row, because there may be many. */
export function readSum(connection: Connection, trails: ReadonlySet<string>): bigint {
  let sum = 0n
  for (const { name, columns } of listTables(connection)) {
    if (!trails.has(name)) continue
    const cells = columns.map(quote).join(', ')
    const select = connection.prepare<[], unknown[]>(`SELECT ${cells} FROM main.${quote(name)}`)
    for (const read of select.raw().iterate()) sum += toNumber(digestOf(name, read))
  }
  return BigInt.asUintN(64, sum)
}

/** Applies changes to the rows of trails. Changes that are already applied have no effect. */
export function applyTrail(rows: Rows, changes: readonly TrailChange[]): void {
  for (const verb of changes.flatMap(({ trail }) => trail)) {
    const [kind, table, key] = verb
    const kept = rows.get(table) ?? new Map()
    rows.set(table, kept)
    if (kind === 'add') kept.set(keyText(key), { key, row: verb[3] })
    else kept.delete(keyText(key))
  }
}

/** Returns the digest of a row. `values` are in the order of the table's columns. */
function digestOf(table: string, values: readonly unknown[]): string {
  const cells = values.some(Buffer.isBuffer) ? values.map(toCell) : values
  return hash('sha256', JSON.stringify([table, cells])).slice(0, DIGEST_CHARS)
}

const toNumber = (digest: string) => BigInt(`0x${digest}`)
