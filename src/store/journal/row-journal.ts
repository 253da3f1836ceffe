import {
  closeSync,
  existsSync,
  fdatasyncSync,
  fstatSync,
  fsyncSync,
  openSync,
  renameSync,
  rmSync,
  statSync,
  writeSync,
} from 'node:fs'
import { dirname } from 'node:path'
import type { Clock } from '../../base/clock.ts'
import { syncFolder } from '../../base/file.ts'
import {
  changeLine,
  filler,
  headLine,
  type JournalContent,
  rowLines,
  type TrailState,
  toJournalChange,
  trailChangeOf,
  trailLines,
} from './journal-text.ts'
import type { RowChange, Rows } from './rows.ts'
import { addUp, type DatabaseState, type TrailChange } from './trail.ts'

/** Minimum room for changes after the rows. The room is at least as large as the rows. */
const LEAST_ROOM_BYTES = 64 * 1024
/** Share of the room kept for changes that free space. */
const KEPT_FOR_DELETES = 1 / 4
/** Sizes are multiples of this. It is also the estimated size of the header. */
const BLOCK_BYTES = 4096
/**
 * Maximum number of trail changes at the start of a journal: the changes since the newest backup, which are
 * few.
 */
const MAX_RECENT = 500

export interface PrepareOptions {
  readonly n: number
  readonly changes: readonly RowChange[]
  /** Returns all rows after the changes, without trails. Called if a new journal has to start. */
  readonly rows: () => Rows
  /** For changes that free space: may use the room kept for them. */
  readonly mayUseReserve?: boolean
  /** On a full disk: the old journal may be deleted before the new one is written. */
  readonly isLastTry?: boolean
}

/** A change with reserved room in the journal. `finish()` writes it. */
export interface PreparedChange {
  /** Writes it to stable storage. Throws the system's error, and the journal is behind then. */
  finish(): void
  cancel(): void
}

/** Start of a new journal. */
interface Beginning {
  readonly n: number
  readonly rows: Rows
  readonly trails: TrailState
  readonly isLastTry?: boolean | undefined
}

export interface RowJournalOptions {
  readonly path: string
  /** Names of the tables that are trails. */
  readonly trails: ReadonlySet<string>
  readonly clock: Clock
}

/** An open journal file. */
interface OpenFile {
  readonly descriptor: number
  readonly size: number
  readonly kept: number
  end: number
}

/**
 * Second copy of a database in a separate file, one line per change. Its space is allocated in advance, so
 * that a lack of space is noticed before the commit.
 *
 * INVARIANTS
 * - A transaction is committed first, then its line is written. A database may be one change ahead of its
 *   journal, never behind. If it is behind, a commit was lost.
 * - A new journal is complete and on stable storage before it replaces the old one.
 * - Lines follow each other without a gap. If a line could not be written, a new journal starts.
 */
export class RowJournal {
  readonly trails: ReadonlySet<string>
  readonly #path: string
  readonly #clock: Clock
  #n = 0
  #state: TrailState = { sum: 0n, recent: [] }
  #file: OpenFile | undefined

  constructor({ path, trails, clock }: RowJournalOptions) {
    this.#path = path
    this.trails = trails
    this.#clock = clock
  }

  /** Whether the next change can be appended. */
  get isOpen(): boolean {
    return this.#file !== undefined
  }

  /** Continues after the last line of a sound journal. */
  resume({ n, end, rowsEnd, size, trails }: JournalContent): void {
    this.close()
    const kept = (size - rowsEnd) * KEPT_FOR_DELETES
    this.#file = { descriptor: openSync(this.#path, 'r+'), size, kept, end }
    this.#n = n
    this.#state = trails
    rmSync(temporaryOf(this.#path), { force: true })
  }

  /**
   * Reports a backup of all changes up to `n`. The next journal then starts without older changes of trails.
   */
  backedUp(n: number): void {
    const recent = this.#state.recent.filter((change) => change.n > n)
    this.#state = { ...this.#state, recent }
  }

  /** Reserves room for change number `n`. */
  prepare({ n, changes, rows, mayUseReserve, isLastTry }: PrepareOptions): PreparedChange {
    const file = this.#present()
    const change = toJournalChange(n, this.#clock.now(), changes, this.trails)
    const trails = this.#after(trailChangeOf(change))
    if (file && n === this.#n + 1) {
      const line = changeLine(change)
      const kept = mayUseReserve ? 0 : file.kept
      if (file.end + line.length + kept <= file.size) return this.#append(file, n, line, trails)
    }
    if (!isLastTry) return this.#begin({ n, rows: rows(), trails })
    this.close()
    rmSync(this.#path, { force: true })
    // Freeing space comes first. The rows of trails are in the database and its backup.
    return this.#begin({ n, rows: rows(), trails: { ...trails, recent: [] }, isLastTry })
  }

  /** Prepares a new journal with the content of the database. */
  prepareNew({ n, rows, sum }: DatabaseState): PreparedChange {
    return this.#begin({ n, rows, trails: { ...this.#state, sum } })
  }

  /** Writes a new journal to a temporary file. `finish()` moves it into place. */
  #begin({ n, rows, trails, isLastTry }: Beginning): PreparedChange {
    const { sum, recent } = trails
    const { text: ofRows, count } = rowLines(rows)
    const text = Buffer.concat([ofRows, trailLines(recent)])
    const room = isLastTry ? BLOCK_BYTES : Math.max(LEAST_ROOM_BYTES, text.length)
    const size = Math.ceil((BLOCK_BYTES + text.length + room) / BLOCK_BYTES) * BLOCK_BYTES
    const head = headLine({
      n,
      at: this.#clock.now(),
      rows: count,
      recent: recent.length,
      sum: sum.toString(16),
      size,
    })
    const end = head.length + text.length
    const temporary = temporaryOf(this.#path)
    const descriptor = makeFile(temporary, Buffer.concat([head, text, filler(end, size)]))
    const cancel = () => {
      closeSync(descriptor)
      rmSync(temporary, { force: true })
    }
    return {
      finish: () => {
        try {
          renameSync(temporary, this.#path)
          syncFolder(dirname(this.#path))
        } catch (error) {
          this.close()
          cancel()
          throw error
        }
        this.close()
        this.#file = { descriptor, size, kept: (size - end) * KEPT_FOR_DELETES, end }
        this.#n = n
        this.#state = trails
      },
      cancel,
    }
  }

  close(): void {
    if (this.#file) closeSync(this.#file.descriptor)
    this.#file = undefined
  }

  #after(change: TrailChange | undefined): TrailState {
    if (!change) return this.#state
    const { sum, recent } = this.#state
    return { sum: addUp(sum, change.trail), recent: [...recent, change].slice(-MAX_RECENT) }
  }

  /** Returns the open file, undefined if it was deleted or replaced. */
  #present(): OpenFile | undefined {
    if (!this.#file) return undefined
    const there = statSync(this.#path, { throwIfNoEntry: false })
    if (there && isSameFile(there, this.#file.descriptor)) return this.#file
    this.close()
    return undefined
  }

  #append(file: OpenFile, n: number, line: Buffer, trails: TrailState): PreparedChange {
    return {
      finish: () => {
        try {
          writeAll(file.descriptor, line, file.end)
          fdatasyncSync(file.descriptor)
        } catch (error) {
          this.close()
          throw error
        }
        file.end += line.length
        this.#n = n
        this.#state = trails
      },
      cancel: () => {},
    }
  }
}

/**
 * Moves a complete new journal into place, if the process ended before that. Does nothing if there is a
 * journal.
 */
export function adoptJournal(path: string): void {
  const temporary = temporaryOf(path)
  if (existsSync(path) || !existsSync(temporary)) return
  renameSync(temporary, path)
  syncFolder(dirname(path))
}

const temporaryOf = (path: string) => `${path}.tmp`

/** Creates a private file with this content on stable storage. */
function makeFile(path: string, content: Buffer): number {
  rmSync(path, { force: true })
  const descriptor = openSync(path, 'wx+', 0o600)
  try {
    writeAll(descriptor, content, 0)
    fsyncSync(descriptor)
    return descriptor
  } catch (error) {
    closeSync(descriptor)
    rmSync(path, { force: true })
    throw error
  }
}

function writeAll(descriptor: number, bytes: Buffer, position: number): void {
  for (let at = 0; at < bytes.length; ) {
    at += writeSync(descriptor, bytes, at, bytes.length - at, position + at)
  }
}

function isSameFile({ dev, ino }: { dev: number; ino: number }, descriptor: number): boolean {
  const open = fstatSync(descriptor)
  return open.dev === dev && open.ino === ino
}
