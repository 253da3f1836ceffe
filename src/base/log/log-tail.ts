import type { FlushableDestination } from './journal.ts'

/** The newest lines of the log, for whoever looks now: the whole of it is where it is written to. */
const MAX_LINES = 1_000
const MAX_BYTES = 512 * 1024
/** A longer line is kept without its details. */
const MAX_LINE_BYTES = 8 * 1024

/** A line of the log as `pino` wrote it, parsed. */
export interface LogLine {
  readonly level: string
  /** ISO 8601. */
  readonly time: string
  readonly msg: string
  readonly [detail: string]: unknown
}

/** A line with its number: they count up by one, from 1 at the start of the process. */
export interface NumberedLine {
  readonly number: number
  readonly line: LogLine
}

/**
 * Keeps the end of what is logged in memory, on its way to its destination. Writing costs a copy of
 * nothing and no parsing; reading does.
 */
export class LogTail {
  /** Oldest first; the number of the last one is `#count`. */
  #lines: string[] = []
  #bytes = 0
  #count = 0

  /** A destination that keeps what goes through it. */
  through(inner: FlushableDestination): FlushableDestination {
    return {
      write: (text) => {
        this.#keep(text)
        inner.write(text)
      },
      flush: (done) => (inner.flush ? inner.flush(done) : done?.()),
    }
  }

  /** Number of the newest line; 0 before the first. */
  get last(): number {
    return this.#count
  }

  /** At most `limit` lines after number `after`, the newest of them, oldest first. */
  after(after: number, limit: number = MAX_LINES): NumberedLine[] {
    const wanted = Math.min(limit, this.#lines.length, Math.max(0, this.#count - after))
    const from = this.#lines.length - wanted
    const first = this.#count - wanted + 1
    return this.#lines.slice(from).map((text, at) => ({ number: first + at, line: parse(text) }))
  }

  #keep(text: string): void {
    // The journal has the priority of a line before it.
    const line = text.startsWith('<') ? text.slice(text.indexOf('>') + 1) : text
    const kept = line.length > MAX_LINE_BYTES ? shortened(line) : line
    this.#lines.push(kept)
    this.#bytes += kept.length
    this.#count += 1
    if (this.#lines.length <= MAX_LINES && this.#bytes <= MAX_BYTES) return
    // A quarter at once: dropping one for each that comes would move all the others each time.
    const left = this.#lines.slice(Math.ceil(this.#lines.length / 4))
    this.#lines = left
    this.#bytes = left.reduce((sum, line) => sum + line.length, 0)
  }
}

function shortened(text: string): string {
  const { level, time, msg } = parse(text)
  const shown = msg.slice(0, MAX_LINE_BYTES / 2)
  return JSON.stringify({ level, time, msg: shown, left_out_bytes: text.length })
}

function parse(text: string): LogLine {
  return JSON.parse(text)
}
