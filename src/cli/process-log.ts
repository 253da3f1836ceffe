import { pino } from 'pino'
import { journalDestination, leadsToJournal } from '../base/journal.ts'
import { createLogger, type Logger, type LogLevel } from '../base/logger.ts'
import type { CommandContext } from './command-context.ts'

const STDERR = 2

/** The log of this process: lines on stderr, with priorities where the journal reads them. */
export function openProcessLog({ environment }: CommandContext, level: LogLevel): Logger {
  const stderr = pino.destination({ fd: STDERR, sync: true })
  const isJournal = leadsToJournal(environment.JOURNAL_STREAM, STDERR)
  return createLogger(level, isJournal ? journalDestination(stderr) : stderr)
}
