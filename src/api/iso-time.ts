import * as z from 'zod'

/** A time as clients read it. */
export const IsoTime = z.string().meta({ format: 'date-time' })

/** Milliseconds since the epoch as clients read them: ISO 8601, UTC. */
export function isoTime(ms: number): string {
  return new Date(ms).toISOString()
}

export function isoTimeOrNull(ms: number | undefined): string | null {
  return ms === undefined ? null : isoTime(ms)
}
