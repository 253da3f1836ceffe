import { createLogger, type Logger, type LogLevel } from '../../src/base/logger.ts'

/** A logger whose lines can be read; `text` is all of them, for canary searches. */
export interface CapturedLog {
  readonly log: Logger
  readonly lines: Record<string, unknown>[]
  text(): string
}

export function captureLog(level: LogLevel = 'trace'): CapturedLog {
  const raw: string[] = []
  const lines: Record<string, unknown>[] = []
  const log = createLogger(level, {
    write: (line: string) => {
      raw.push(line)
      lines.push(JSON.parse(line))
    },
  })
  return { log, lines, text: () => raw.join('') }
}
