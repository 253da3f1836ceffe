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

/** Passes on lines of at least the level `least`. A lower level may be kept elsewhere. */
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
/** Bytes that wait for a slow reader. Further lines are dropped. */
const MAX_WAITING_BYTES = 1_048_576

/**
 * The log of this process on stderr: readable on a terminal, else JSON lines, with priorities for the
 * journal. `tail` keeps the newest lines, including levels below `shown`.
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

/** A pipe without a reader must not block the tunnels. Files and terminals accept all output. */
function openStderr(): FlushableDestination {
  const kind = fstatSync(STDERR)
  if (kind.isFIFO() || kind.isSocket())
    return pipeDestination(new Socket({ fd: STDERR, readable: false, writable: true }))
  return pino.destination({ fd: STDERR, sync: true })
}

function pipeDestination(pipe: Socket): FlushableDestination {
  // Without a reader, the error has no place to go.
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
