import * as z from 'zod'
import { parseDuration } from '../../base/clock.ts'
import type { ProblemKind } from './problem.ts'

/** Marks what is wrong in a way that zod carries along. */
export const problem = (kind: ProblemKind, message: string) => ({
  error: message,
  params: { kind },
})

/** RFC 9110 5.1, as far as the service takes it. */
const HEADER_NAME = /^[a-zA-Z0-9_-]{1,256}$/
const MAX_HEADER_VALUE = 8_192

export const isHeaderName = (text: string): boolean => HEADER_NAME.test(text)

/** What may stand in a field value (RFC 9110 5.5): no control characters but tab. */
export const isHeaderValue = (text: string): boolean => /^[\t\x20-\x7e\x80-\xff]*$/.test(text)

/** YAML makes numbers and truth values of what stands without quotes. */
const HeaderText = z.preprocess(
  (value) => (typeof value === 'number' || typeof value === 'boolean' ? String(value) : value),
  z.string().max(MAX_HEADER_VALUE),
)

/** Names and values; `least` is how many there must be. The rest is up to `headerTemplates()`. */
export function headers(least: 0 | 1) {
  return z
    .record(z.string(), HeaderText)
    .refine(
      (map) => Object.keys(map).length >= least,
      problem('empty', 'At least one header is required.'),
    )
}

const DURATION_HINT = 'A duration must be text such as 90s, 10m or 1h.'

const NS_PER_MS = 1_000_000

/** A duration such as `90s` or `10m`, in milliseconds; as a number it is taken for nanoseconds. */
export function durationMs(least: string, most: string) {
  const [min = 0, max = 0] = [parseDuration(least), parseDuration(most)]
  // Who means seconds comes out far below, and is told how to write them.
  const isWithin = (ms: number) => ms >= min && ms <= max
  const asText = (value: unknown) =>
    typeof value === 'number' && isWithin(value / NS_PER_MS) ? `${value / NS_PER_MS}ms` : value
  const text = z
    .string({ error: ({ input }) => (input === undefined ? undefined : DURATION_HINT) })
    .refine((text) => parseDuration(text) !== undefined, problem('badDuration', DURATION_HINT))
    .refine(
      (text) => {
        const ms = parseDuration(text)
        return ms === undefined || isWithin(ms)
      },
      problem('outOfRange', `The duration must be from ${least} to ${most}.`),
    )
    .transform((text) => parseDuration(text) ?? 0)
  return z.preprocess(asText, text)
}

/** A list of at least one and at most `most` items. */
export function listOf<T extends z.ZodType>(item: T, most: number) {
  return z.array(item).min(1).max(most)
}
