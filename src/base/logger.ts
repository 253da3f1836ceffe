import { type DestinationStream, type Logger, pino } from 'pino'

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
 * Secrets are kept out by type (`Secret`) first; the paths here are the second line.
 */
export function createLogger(level: LogLevel, destination?: DestinationStream): Logger {
  return pino(
    {
      level,
      base: null,
      timestamp: () => `,"time":"${new Date().toISOString()}"`,
      formatters: { level: (label) => ({ level: label }) },
      redact: { paths: REDACTED, censor: '[secret]' },
    },
    destination ?? pino.destination({ fd: 2, sync: true }),
  )
}
