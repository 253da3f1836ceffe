import { hash } from 'node:crypto'
import { existsSync, readFileSync } from 'node:fs'
import {
  type Cell,
  type Key,
  type KeyedRow,
  keyText,
  type Row,
  type RowChange,
  type Rows,
  sameCell,
} from './rows.ts'
import { addUp, isTrailVerb, type TrailChange, type TrailVerb, toTrailVerbs } from './trail.ts'

/**
 * Text of a journal, in this order:
 *
 * - one line for the header
 * - one line for each row at the start of the journal
 * - one line for each recent change of trails before the start
 * - one line for each change since the start
 * - filler up to the size given in the header
 *
 * Each line begins with a checksum. The filler differs in each block. So a truncated, zeroed or misplaced
 * block cannot look like the end of the written lines.
 */
const FORMAT = 1
const CHECKSUM_CHARS = 16
/** Smallest block that a disk writes atomically. */
const SLOT_BYTES = 512
const NEWLINE = 0x0a

/** First change of the journal, and the sizes of the following parts. */
export interface JournalHead {
  /** Number of the change after which the rows had the following state. */
  readonly n: number
  /** Time of this change, in milliseconds since the epoch. */
  readonly at: number
  readonly rows: number
  /** Number of changes of trails that follow, and the sum of all rows of trails. */
  readonly recent: number
  readonly sum: string
  readonly size: number
}

type Verb =
  | readonly ['put', table: string, key: Key, row: Row]
  /** Changed cells only. */
  | readonly ['set', table: string, key: Key, cells: Row]
  | readonly ['drop', table: string, key: Key]
  | TrailVerb

/** All changes of one transaction. */
export interface JournalChange {
  readonly n: number
  readonly at: number
  readonly changes: readonly Verb[]
}

export interface JournalContent {
  /** Number and time of the last change that can be read without a gap. */
  readonly n: number
  readonly at: number
  /** All rows after that change, without trails. Undefined if the beginning is damaged. */
  readonly rows: Rows | undefined
  readonly trails: TrailState
  /** `torn`: at most one line is incomplete, as after a power cut. `damaged`: anything may be lost. */
  readonly tail: 'clean' | 'torn' | 'damaged'
  /** Changes after a gap. */
  readonly rest: readonly JournalChange[]
  /** End of the rows, end of the changes, and size of the file, in bytes. */
  readonly rowsEnd: number
  readonly end: number
  readonly size: number
}

/** Information about trails in a journal. */
export interface TrailState {
  readonly sum: bigint
  /** The newest changes, oldest first. */
  readonly recent: readonly TrailChange[]
}

export function headLine(head: JournalHead): Buffer {
  return encodeLine({ format: FORMAT, ...head })
}

export function rowLines(rows: Rows): { readonly text: Buffer; readonly count: number } {
  const lines: Buffer[] = []
  for (const [table, kept] of rows) {
    for (const { key, row } of kept.values()) lines.push(encodeLine([table, key, row]))
  }
  return { text: Buffer.concat(lines), count: lines.length }
}

export function trailLines(recent: readonly TrailChange[]): Buffer {
  return Buffer.concat(recent.map(encodeLine))
}

export function toJournalChange(
  n: number,
  at: number,
  changes: readonly RowChange[],
  trails: ReadonlySet<string>,
): JournalChange {
  const verbs = changes.flatMap((change): readonly Verb[] =>
    trails.has(change.table) ? toTrailVerbs(change) : [toVerb(change)],
  )
  return { n, at, changes: verbs }
}

export function changeLine(change: JournalChange): Buffer {
  return encodeLine(change)
}

/** Returns the part of a change that affects trails, undefined if there is no such part. */
export function trailChangeOf({ n, changes }: JournalChange): TrailChange | undefined {
  const trail = changes.filter(isTrailVerb)
  return trail.length > 0 ? { n, trail } : undefined
}

/** Returns the filler between two offsets of a journal. */
export function filler(from: number, to: number): Buffer {
  const slots: string[] = []
  const first = Math.floor(from / SLOT_BYTES)
  for (let slot = first; slot * SLOT_BYTES < to; slot += 1) {
    slots.push(`${slot}\n`.padStart(SLOT_BYTES, '-'))
  }
  const start = first * SLOT_BYTES
  return Buffer.from(slots.join('')).subarray(from - start, to - start)
}

/** Reads as much as possible. Returns undefined if the file does not exist. */
export function readJournal(path: string): JournalContent | undefined {
  if (!existsSync(path)) return undefined
  try {
    return parseJournal(readFileSync(path))
  } catch {
    // A bad block, or not a file: the content is unknown.
    return parseJournal(Buffer.alloc(0))
  }
}

export function parseJournal(bytes: Buffer): JournalContent {
  const lines = new LineReader(bytes)
  const head = lines.read(isHead)
  const rows: Rows = new Map()
  let missingRows = head?.rows ?? 1
  for (; missingRows > 0; missingRows -= 1) {
    const line = head && lines.read(isRowLine)
    if (!line) break
    const [table, key, row] = line
    tableOf(rows, table).set(keyText(key), { key, row })
  }
  const recent: TrailChange[] = []
  let missingRecent = head?.recent ?? 1
  for (; missingRows === 0 && missingRecent > 0; missingRecent -= 1) {
    const line = lines.read(isTrailChange)
    if (!line) break
    recent.push(line)
  }
  const isBegun = missingRows === 0 && missingRecent === 0
  const rowsEnd = lines.at
  let { n, at } = head ?? { n: 0, at: 0 }
  let sum = BigInt(`0x${head?.sum ?? '0'}`)
  let lost = 0
  if (isBegun) {
    const isNext = (value: unknown): value is JournalChange => isChange(value) && value.n === n + 1
    for (let line = lines.read(isNext); line; line = lines.read(isNext)) {
      lost += applyChange(rows, line)
      const trail = trailChangeOf(line)
      if (trail) recent.push(trail)
      sum = addUp(sum, trail?.trail ?? [])
      n = line.n
      at = line.at
    }
  }
  const end = lines.at
  const isWhole = isBegun && lost === 0 && head?.size === bytes.length
  const tail = isWhole ? tailOf(bytes, end) : 'damaged'
  const rest = tail === 'clean' ? [] : lines.scan(isChange).filter((change) => change.n > n)
  const common = { n, at, tail, rest, rowsEnd, end, size: bytes.length, trails: { sum, recent } }
  return { ...common, rows: isBegun ? rows : undefined }
}

/** Applies a change to `rows`, without trails. Returns the number of its rows that were missing. */
export function applyChange(rows: Rows, { changes }: JournalChange): number {
  let lost = 0
  for (const change of changes) {
    if (isTrailVerb(change)) continue
    const [verb, table, key, cells] = change
    const kept = tableOf(rows, table)
    const mark = keyText(key)
    const row = kept.get(mark)?.row
    if (verb === 'drop') kept.delete(mark)
    else if (verb === 'put') kept.set(mark, { key, row: cells })
    else if (row) kept.set(mark, { key, row: { ...row, ...cells } })
    else lost += 1
  }
  return lost
}

function toVerb({ table, key, before, after }: RowChange): Verb {
  if (!after) return ['drop', table, key]
  if (!before) return ['put', table, key, after]
  const changed = Object.entries(after).filter(([name, cell]) => !sameCell(cell, before[name]))
  return ['set', table, key, Object.fromEntries(changed)]
}

/**
 * Classifies the bytes after the last line. A line interrupted by a power cut lacks some blocks, which still
 * contain filler. More than one line, or bytes that never occur in lines, are damage.
 */
function tailOf(bytes: Buffer, end: number): JournalContent['tail'] {
  const expected = filler(end, bytes.length)
  // The usual case. A loop over these bytes at each start made V8 start its largest compiler.
  if (bytes.subarray(end).equals(expected)) return 'clean'
  let last = expected.length - 1
  while (last >= 0 && bytes[end + last] === expected[last]) last -= 1
  for (let at = 0; at <= last; at += 1) {
    const byte = bytes[end + at] ?? 0
    if (byte === expected[at]) continue
    if (byte < 0x20 && !(byte === NEWLINE && at === last)) return 'damaged'
  }
  return 'torn'
}

function tableOf(rows: Rows, name: string): Map<string, KeyedRow> {
  const table = rows.get(name) ?? new Map<string, KeyedRow>()
  rows.set(name, table)
  return table
}

function encodeLine(value: unknown): Buffer {
  const text = JSON.stringify(value)
  return Buffer.from(`${checksumOf(text)} ${text}\n`)
}

function checksumOf(text: string | Buffer): string {
  return hash('sha256', text).slice(0, CHECKSUM_CHARS)
}

/** Reads the lines of a journal. A line with a wrong checksum is skipped. */
class LineReader {
  readonly #bytes: Buffer
  at = 0

  constructor(bytes: Buffer) {
    this.#bytes = bytes
  }

  /** Returns the next line if it is sound and of this kind. Otherwise the position stays. */
  read<T>(is: (value: unknown) => value is T): T | undefined {
    const end = this.#bytes.indexOf(NEWLINE, this.at)
    if (end === -1) return undefined
    const value = decodeLine(this.#bytes.subarray(this.at, end))
    if (!is(value)) return undefined
    this.at = end + 1
    return value
  }

  /** Returns all sound lines of a kind from here on, skipping other bytes. */
  scan<T>(is: (value: unknown) => value is T): T[] {
    const found: T[] = []
    for (let from = this.at; from < this.#bytes.length; ) {
      const newline = this.#bytes.indexOf(NEWLINE, from)
      const end = newline === -1 ? this.#bytes.length : newline
      const value = decodeLine(this.#bytes.subarray(from, end))
      if (is(value)) found.push(value)
      from = end + 1
    }
    return found
  }
}

function decodeLine(line: Buffer): unknown {
  const text = line.subarray(CHECKSUM_CHARS + 1)
  const before = line.toString('latin1', 0, CHECKSUM_CHARS + 1)
  if (text.length === 0 || before !== `${checksumOf(text)} `) return undefined
  return JSON.parse(text.toString())
}

/** Checks the kind of a line. Its checksum proves that it is as written. */
function isHead(value: unknown): value is JournalHead {
  return isObject(value) && value.format === FORMAT
}

function isRowLine(value: unknown): value is readonly [string, readonly Cell[], Row] {
  return Array.isArray(value)
}

function isTrailChange(value: unknown): value is TrailChange {
  return isObject(value) && Array.isArray(value.trail)
}

function isChange(value: unknown): value is JournalChange {
  return isObject(value) && Array.isArray(value.changes)
}

function isObject(value: unknown): value is Record<string, unknown> {
  return typeof value === 'object' && value !== null
}
