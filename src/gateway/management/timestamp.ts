import * as z from 'zod'

/** A time in an answer. Its format tells filters that it is compared with times. */
export const Timestamp = z.string().meta({ format: 'date-time' })

/** Milliseconds since the epoch as RFC 3339 in UTC, whole seconds: `2030-01-01T00:00:00Z`. */
export function timestamp(ms: number): string {
  return `${new Date(ms).toISOString().slice(0, 19)}Z`
}
