import { parseDuration } from '../../../base/duration.ts'

const DAY_MS = 86_400_000
const TIME = /^(\d{4}-\d\d-\d\d)(?:Z|(T\d\d:\d\d:\d\d(?:\.\d+)?(?:Z|[+-]\d\d:\d\d)))?$/i
const SHIFT = /^(?:(\d+)d)?(.*)$/

/**
 * Milliseconds since the epoch of an RFC 3339 time, or of a date alone, which begins in UTC.
 * Undefined when it is none.
 */
export function parseTime(text: string): number | undefined {
  const [, date = '', time = 'T00:00:00Z'] = TIME.exec(text) ?? []
  const ms = Date.parse(`${date}${time}`.toUpperCase())
  return Number.isNaN(ms) ? undefined : ms
}

/** Milliseconds of a duration that may begin with days: `7d`, `1d12h`, `15m`; else undefined. */
export function parseShift(text: string): number | undefined {
  const [, days, rest = ''] = SHIFT.exec(text) ?? []
  const restMs = days !== undefined && rest === '' ? 0 : parseDuration(rest)
  return restMs === undefined ? undefined : Number(days ?? 0) * DAY_MS + restMs
}
