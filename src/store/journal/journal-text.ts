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
 * The text of a journal: one line each for its header, for every row as it was when the journal
 * began, for the newest changes of trails until then, and for every change since then; then filler up
 * to the size that the header tells. Each
 * line begins with a checksum. The filler has other bytes in each block: so neither a cut nor a
 * zeroed or strayed block can look like the end of what was written.
 */
const FORMAT = 1
const CHECKSUM_CHARS = 16
/** The smallest block that a disk writes as one. */
const SLOT_BYTES = 512
const NEWLINE = 0x0a

/** Which change the journal begins with, and how much follows. */
export interface JournalHead {
  /** Number of the change after which all rows were as they follow. */
  readonly n: number
  /** When that was, in milliseconds since the epoch. */
  readonly at: number
  readonly rows: number
  /** How many changes of trails follow, and the sum of all their rows. */
  readonly recent: number
  readonly sum: string
  readonly size: number
}

type Verb =
  | readonly ['put', table: string, key: Key, row: Row]
  /** Only the cells that changed. */
  | readonly ['set', table: string, key: Key, cells: Row]
  | readonly ['drop', table: string, key: Key]
  | TrailVerb

/** All that one transaction changed. */
export interface JournalChange {
  readonly n: number
  readonly at: number
  readonly changes: readonly Verb[]
}

export interface JournalContent {
  /** Number and time of the last change that can be read without a gap. */
  readonly n: number
  readonly at: number
  /** All rows after that change but those of trails; undefined when the beginning is damaged. */
  readonly rows: Rows | undefined
  readonly trails: TrailState
  /** `torn`: at most one more line was begun, as when power is cut; `damaged`: anything may be lost. */
  readonly tail: 'clean' | 'torn' | 'damaged'
  /** Changes behind a gap. */
  readonly rest: readonly JournalChange[]
  /** Where rows and changes end, in bytes, and the file. */
  readonly rowsEnd: number
  readonly end: number
  readonly size: number
}

/** What a journal knows of trails. */
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

/** What a change does to trails; undefined when that is nothing. */
export function trailChangeOf({ n, changes }: JournalChange): TrailChange | undefined {
  const trail = changes.filter(isTrailVerb)
  return trail.length > 0 ? { n, trail } : undefined
}

/** What stands in a journal from one offset to another while nothing is written there. */
export function filler(from: number, to: number): Buffer {
  const slots: string[] = []
  const first = Math.floor(from / SLOT_BYTES)
  for (let slot = first; slot * SLOT_BYTES < to; slot += 1) {
    slots.push(`${slot}\n`.padStart(SLOT_BYTES, '-'))
  }
  const start = first * SLOT_BYTES
  return Buffer.from(slots.join('')).subarray(from - start, to - start)
}

/** Reads what can be read; undefined when there is no file. */
export function readJournal(path: string): JournalContent | undefined {
  if (!existsSync(path)) return undefined
  try {
    return parseJournal(readFileSync(path))
  } catch {
    // A bad block, or no file at all: nothing of it is known.
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

/** Makes a change to `rows`, trails aside; answers how many of its rows were not there to be changed. */
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
 * A line that was begun when power was cut lacks some of its blocks, which are filler as before. More
 * than one line, or bytes that no line has, are damage.
 */
function tailOf(bytes: Buffer, end: number): JournalContent['tail'] {
  const expected = filler(end, bytes.length)
  // What is so in nearly every start: a loop over these bytes was the one that had V8 wake its largest compiler.
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

/** Goes through the lines of a journal; a line with a wrong checksum is none. */
class LineReader {
  readonly #bytes: Buffer
  at = 0

  constructor(bytes: Buffer) {
    this.#bytes = bytes
  }

  /** The next line, if it is sound and of that kind; else the place stays. */
  read<T>(is: (value: unknown) => value is T): T | undefined {
    const end = this.#bytes.indexOf(NEWLINE, this.at)
    if (end === -1) return undefined
    const value = decodeLine(this.#bytes.subarray(this.at, end))
    if (!is(value)) return undefined
    this.at = end + 1
    return value
  }

  /** All sound lines of a kind from here on, whatever stands between them. */
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

/** What has the right checksum is what was written: only its kind is left to tell. */
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
