import { fstatSync } from 'node:fs'
import { Socket } from 'node:net'
import { pino } from 'pino'
import {
  createLogger,
  type FlushableDestination,
  journalDestination,
  type Logger,
  type LogLevel,
  type LogTail,
  leadsToJournal,
} from '../base/logger.ts'
import type { CommandContext } from './command-context.ts'
import { readableLines } from './local/log-text.ts'
import { isTerminal, paintFor } from './local/terminal-text.ts'

/** How `createLogger` begins a line; the journal has a priority before it. */
const BEGINNING = /^(?:<\d>)?\{"level":"(\w+)"/

/** A destination that gets what is as grave as `least` or graver, of a log that is kept elsewhere, too. */
export function fromLevel(least: LogLevel, inner: FlushableDestination): FlushableDestination {
  const { values } = pino.levels
  const rank = values[least] ?? Number.POSITIVE_INFINITY
  return {
    write: (line) => {
      const level = BEGINNING.exec(line)?.[1]
      if (level === undefined || (values[level] ?? rank) >= rank) inner.write(line)
    },
    flush: (done) => (inner.flush ? inner.flush(done) : done?.()),
  }
}

const STDERR = 2
/** What may wait for a reader that does not read; lines on top of it are dropped. */
const MAX_WAITING_BYTES = 1_048_576

/**
 * The log of this process on stderr: for people on a terminal, else JSON lines, with priorities where
 * the journal reads them. `tail` keeps the newest, also of what is less grave than `shown`.
 */
export function openProcessLog(
  { environment, stderr: stream }: CommandContext,
  level: LogLevel,
  { tail, shown = level }: { readonly tail?: LogTail; readonly shown?: LogLevel } = {},
): Logger {
  const lines = openStderr()
  const opened = isTerminal(stream) ? readableLines(lines, paintFor(stream, environment)) : lines
  const filtered = shown === level ? opened : fromLevel(shown, opened)
  const stderr = tail ? tail.through(filtered) : filtered
  const isJournal = leadsToJournal(environment.JOURNAL_STREAM, STDERR)
  return createLogger(level, isJournal ? journalDestination(stderr) : stderr)
}

/** A pipe that nobody reads must not stop the tunnels; files and terminals take what comes. */
function openStderr(): FlushableDestination {
  const kind = fstatSync(STDERR)
  if (kind.isFIFO() || kind.isSocket())
    return pipeDestination(new Socket({ fd: STDERR, readable: false, writable: true }))
  return pino.destination({ fd: STDERR, sync: true })
}

function pipeDestination(pipe: Socket): FlushableDestination {
  // Without a reader there is nobody to tell.
  pipe.on('error', () => {})
  pipe.unref()
  return {
    write: (line) => {
      if (pipe.writableLength < MAX_WAITING_BYTES) pipe.write(line)
    },
    flush: (done) => {
      pipe.write('', () => done?.())
    },
  }
}
