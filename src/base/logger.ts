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
