import { fstatSync } from 'node:fs'
import type { DestinationStream } from 'pino'

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
