import { createLogger, type Logger, type LogLevel, type LogTail } from '../../src/base/logger.ts'

/** A logger whose lines can be read; `text` is all of them, for canary searches. */
export interface CapturedLog {
  readonly log: Logger
  readonly lines: Record<string, unknown>[]
  text(): string
}

export function captureLog(level: LogLevel = 'trace', tail?: LogTail): CapturedLog {
  const raw: string[] = []
  const lines: Record<string, unknown>[] = []
  const destination = {
    write: (line: string) => {
      raw.push(line)
      lines.push(JSON.parse(line))
    },
  }
  const log = createLogger(level, tail?.through(destination) ?? destination)
  return { log, lines, text: () => raw.join('') }
}
