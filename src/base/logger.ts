import { fstatSync } from 'node:fs'
import { type DestinationStream, type Logger, pino, stdSerializers } from 'pino'
import { maskedForms } from './masked-text.ts'

export type { Logger } from 'pino'
export type LogLevel = 'trace' | 'debug' | 'info' | 'warn' | 'error' | 'fatal' | 'silent'

const REDACTED = [
  'authtoken',
  'token',
  'password',
  'authorization',
  '*.authtoken',
  '*.token',
  '*.password',
  '*.authorization',
  'req.headers.authorization',
  'req.headers.cookie',
]

/**
 * JSON lines on stderr: stdout belongs to what commands print, and the SDK writes there too.
 * Secrets are kept out by type (`Secret`) first; the paths here, and what a text looks like, are the
 * second line.
 */
export function createLogger(level: LogLevel, destination?: DestinationStream): Logger {
  return pino(
    {
      level,
      base: null,
      timestamp: () => `,"time":"${new Date().toISOString()}"`,
      formatters: { level: (label) => ({ level: label }) },
      hooks: { streamWrite: maskedForms },
      redact: { paths: REDACTED, censor: '[secret]' },
      serializers: {
        err: level === 'debug' || level === 'trace' ? stdSerializers.err : briefError,
      },
    },
    destination ?? pino.destination({ fd: 2, sync: true }),
  )
}

/** What went wrong without where in our code: a stack is for who looks closer, at level debug. */
function briefError(error: unknown): unknown {
  if (!(error instanceof Error)) return error
  const { name, message, cause } = error
  const code = 'code' in error ? error.code : undefined
  return { name, message, code, ...(cause === undefined ? {} : { cause: briefError(cause) }) }
}

/** Priorities of sd-daemon(3) for pino's numeric levels. */
const PRIORITIES: ReadonlyMap<number, number> = new Map([
  [10, 7],
  [20, 7],
  [30, 6],
  [40, 4],
  [50, 3],
  [60, 2],
])
const DEFAULT_PRIORITY = 6

/** True when the descriptor leads to systemd's journal, as `JOURNAL_STREAM` (systemd.exec(5)) says. */
export function leadsToJournal(journalStream: string | undefined, descriptor: number): boolean {
  if (journalStream === undefined) return false
  const { dev, ino } = fstatSync(descriptor)
  return journalStream === `${dev}:${ino}`
}

/** The text as an error of the journal, which reads a priority before each line. */
export function asJournalError(text: string): string {
  return text.replace(/^(?=.)/gm, '<3>')
}

/** A destination that may hold lines back for a moment. */
export interface FlushableDestination extends DestinationStream {
  flush?(done?: (error?: Error) => void): void
}

/** Puts each line's priority before it, so that `journalctl -p warning` finds what matters. */
export function journalDestination(inner: FlushableDestination): FlushableDestination {
  // pino writes the level of the next line into a destination that asks for it.
  const destination = {
    [Symbol.for('pino.metadata')]: true,
    lastLevel: 30,
    write: (line: string) => {
      inner.write(`<${PRIORITIES.get(destination.lastLevel) ?? DEFAULT_PRIORITY}>${line}`)
    },
    flush: (done?: (error?: Error) => void) => (inner.flush ? inner.flush(done) : done?.()),
  }
  return destination
}

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
interface NumberedLine {
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
