import { pino } from 'pino'
import type { LogLevel } from '../logger.ts'
import type { FlushableDestination } from './journal.ts'

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
