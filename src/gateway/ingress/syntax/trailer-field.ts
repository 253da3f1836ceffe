import { KNOWN_FIELDS } from './known-field.ts'

/**
 * Fields that may not come behind a body (RFC 9110 6.5.1): the message has been framed, routed and
 * let in by then. Servers that put trailers among the headers would believe them all the same.
 */
const NEVER_LATE: ReadonlySet<string> = new Set([
  ...KNOWN_FIELDS,
  'authorization',
  'cache-control',
  'content-encoding',
  'content-range',
  'content-type',
  'cookie',
  'max-forwards',
  'pragma',
  'proxy-authenticate',
  'proxy-authorization',
  'range',
  'set-cookie',
  'trailer',
  'www-authenticate',
])
const NEVER_LATE_KINDS = /^(?:if-|x-forwarded-)/

/** True for the name of a field that means the same in front of a body and behind it. */
export function mayTrail(name: string): boolean {
  const key = name.toLowerCase().replaceAll('_', '-')
  return !NEVER_LATE.has(key) && !NEVER_LATE_KINDS.test(key)
}
