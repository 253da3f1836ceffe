import { consistsOf, TOKEN, VALUE } from './byte-class.ts'
import { HttpSyntaxError } from './http-syntax-error.ts'

/** What a head may take, as with HTTP/1. */
export interface HeadLimits {
  readonly headBytes: number
  readonly headFields: number
}

/** What each field adds to the size of a list (RFC 9113 6.5.2). */
const FIELD_OVERHEAD = 32

/**
 * Throws HttpSyntaxError when a list is too large, or has what HTTP/1 cannot carry: that would be
 * another message there (RFC 9113 8.2.1 and 10.3). `raw` alternates name and value.
 */
export function checkFields(raw: readonly string[], { headBytes, headFields }: HeadLimits): void {
  let bytes = 0
  for (let at = 0; at < raw.length; at += 2) {
    const name = raw[at] as string
    const value = raw[at + 1] as string
    bytes += name.length + value.length + FIELD_OVERHEAD
    checkField(name, value)
  }
  if (bytes > headBytes) throw new HttpSyntaxError(`more than ${headBytes} bytes`, 'too-large')
  if (raw.length / 2 > headFields) {
    throw new HttpSyntaxError(`more than ${headFields} fields`, 'too-large')
  }
}

function checkField(name: string, value: string): void {
  const from = name.startsWith(':') ? 1 : 0
  if (!consistsOf(name, from, name.length, TOKEN))
    throw new HttpSyntaxError('an invalid field name')
  if (value !== '' && !consistsOf(value, 0, value.length, VALUE)) {
    throw new HttpSyntaxError('an invalid character in a field value')
  }
}
