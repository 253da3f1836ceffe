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
 * Creates a logger that writes JSON lines to stderr. Stdout is for the output of commands, and the SDK writes
 * there too.
 *
 * The type `Secret` keeps secrets out of the log. The paths here and the masking of texts are a second
 * protection.
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

/** Removes the stack of an error. Stacks are logged only at the levels debug and trace. */
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

/**
 * True if the descriptor is connected to systemd's journal, according to `JOURNAL_STREAM` (systemd.exec(5)).
 */
export function leadsToJournal(journalStream: string | undefined, descriptor: number): boolean {
  if (journalStream === undefined) return false
  const { dev, ino } = fstatSync(descriptor)
  return journalStream === `${dev}:${ino}`
}

/** Marks each line of the text as an error. The journal reads a priority at the start of a line. */
export function asJournalError(text: string): string {
  return text.replace(/^(?=.)/gm, '<3>')
}

/** A destination that may buffer lines for a short time. */
export interface FlushableDestination extends DestinationStream {
  flush?(done?: (error?: Error) => void): void
}

/** Prefixes each line with its priority, so that `journalctl -p warning` works. */
export function journalDestination(inner: FlushableDestination): FlushableDestination {
  // pino sets `lastLevel` of a destination with this symbol before each line.
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

/** Newest log lines kept in memory. The full log is at its destination. */
const MAX_LINES = 1_000
const MAX_BYTES = 512 * 1024
/** Longer lines are kept without their details. */
const MAX_LINE_BYTES = 8 * 1024

/** A log line as written by `pino`, parsed. */
export interface LogLine {
  readonly level: string
  /** ISO 8601. */
  readonly time: string
  readonly msg: string
  readonly [detail: string]: unknown
}

/** A line with its number. Numbers start at 1 with the process and increase by one. */
interface NumberedLine {
  readonly number: number
  readonly line: LogLine
}

/** Keeps the newest log lines in memory while passing them on. Lines are parsed only when they are read. */
export class LogTail {
  /** Oldest first. The last one has the number `#count`. */
  #lines: string[] = []
  #bytes = 0
  #count = 0

  /** Wraps a destination and keeps the lines written to it. */
  through(inner: FlushableDestination): FlushableDestination {
    return {
      write: (text) => {
        this.#keep(text)
        inner.write(text)
      },
      flush: (done) => (inner.flush ? inner.flush(done) : done?.()),
    }
  }

  /** Number of the newest line, 0 before the first. */
  get last(): number {
    return this.#count
  }

  /** Returns the newest lines after number `after`, at most `limit`, oldest first. */
  after(after: number, limit: number = MAX_LINES): NumberedLine[] {
    const wanted = Math.min(limit, this.#lines.length, Math.max(0, this.#count - after))
    const from = this.#lines.length - wanted
    const first = this.#count - wanted + 1
    return this.#lines.slice(from).map((text, at) => ({ number: first + at, line: parse(text) }))
  }

  #keep(text: string): void {
    // A line for the journal starts with its priority.
    const line = text.startsWith('<') ? text.slice(text.indexOf('>') + 1) : text
    const kept = line.length > MAX_LINE_BYTES ? shortened(line) : line
    this.#lines.push(kept)
    this.#bytes += kept.length
    this.#count += 1
    if (this.#lines.length <= MAX_LINES && this.#bytes <= MAX_BYTES) return
    // Drops a quarter at once, because dropping one line at a time would move all others each time.
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
