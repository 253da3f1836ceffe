import { isIPv6 } from 'node:net'

/** Names in `Connection` that do not remove a field: options, and fields for routing and framing. */
const NO_FIELDS = new Set([
  'close',
  'keep-alive',
  'upgrade',
  'connection',
  'host',
  'content-length',
  'transfer-encoding',
])

/** Options of the `Connection` fields of a message (RFC 9110 7.6.1). */
export interface ConnectionOptions {
  readonly close: boolean
  readonly keepAlive: boolean
  readonly upgrade: boolean
  /** Lower-case names of fields for this hop only. */
  readonly fields: readonly string[]
}

export const NO_OPTIONS: ConnectionOptions = {
  close: false,
  keepAlive: false,
  upgrade: false,
  fields: [],
}

const CLOSE: ConnectionOptions = { ...NO_OPTIONS, close: true }
const KEEP_ALIVE: ConnectionOptions = { ...NO_OPTIONS, keepAlive: true }

/** Adds the options of another `Connection` field to `before`. */
export function addConnectionOptions(before: ConnectionOptions, value: string): ConnectionOptions {
  if (before === NO_OPTIONS) {
    if (value === 'keep-alive') return KEEP_ALIVE
    if (value === 'close') return CLOSE
  }
  const names = value
    .split(',')
    .map((part) => part.trim().toLowerCase())
    .filter((part) => part !== '')
  if (!names.every((name) => consistsOf(name, 0, name.length, TOKEN))) {
    throw new HttpSyntaxError('an invalid Connection field')
  }
  return {
    close: before.close || names.includes('close'),
    keepAlive: before.keepAlive || names.includes('keep-alive'),
    upgrade: before.upgrade || names.includes('upgrade'),
    fields: [...before.fields, ...names.filter((name) => !NO_FIELDS.has(name))],
  }
}

const DOT = 0x2e
const DIGITS = /^[0-9]{1,5}$/
const MAX_PORT = 65_535
const IP_LITERAL = /^\[([0-9A-Fa-f:.]{2,45})\]$/

/**
 * Returns the host name of a Host value (RFC 9110 7.2) for lookups: lower case, without port, without a final
 * dot. An empty port is refused like an invalid port. RFC 3986 3.2.3 allows it, but clients do not send it
 * and servers read it differently. Throws HttpSyntaxError.
 */
export function hostnameOf(host: string): string {
  const bracket = host.lastIndexOf(']')
  const colon = host.indexOf(':', bracket + 1)
  const end = colon === -1 ? host.length : colon
  if (colon !== -1 && !isPort(host.slice(colon + 1))) {
    throw new HttpSyntaxError('a Host with an invalid port')
  }
  const nameEnd = host.charCodeAt(end - 1) === DOT ? end - 1 : end
  const name = host.slice(0, nameEnd)
  if (!(bracket === -1 ? consistsOf(host, 0, nameEnd, HOST) : isIpLiteral(name))) {
    throw new HttpSyntaxError('a Host that is not a valid host name')
  }
  return name.toLowerCase()
}

function isPort(text: string): boolean {
  return DIGITS.test(text) && Number(text) <= MAX_PORT
}

function isIpLiteral(name: string): boolean {
  return isIPv6(IP_LITERAL.exec(name)?.[1] ?? '')
}

/** Limits of a head, as for HTTP/1. */
export interface HeadLimits {
  readonly headBytes: number
  readonly headFields: number
}

/** Size added for each field of a list (RFC 9113 6.5.2), in bytes. */
const FIELD_OVERHEAD = 32

/**
 * Throws HttpSyntaxError if a list is too large or has bytes that HTTP/1 cannot carry, where they would
 * change the message (RFC 9113 8.2.1 and 10.3). `raw` alternates name and value.
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

/** Allowed in a token: method, field name, chunk extension (RFC 9110 5.6.2). */
export const TOKEN = 1
/** Allowed in a field value: VCHAR, obs-text, SP, HTAB (RFC 9110 5.5). */
export const VALUE = 2
/** Allowed in a start line: VCHAR, obs-text, SP. */
export const LINE = 4
/** Allowed in a request target: VCHAR without `#` (RFC 9112 3.2, RFC 3986 4.3). */
export const TARGET = 8
/** Allowed in a host name or IPv4 address; stricter than reg-name (RFC 3986 3.2.2). */
export const HOST = 16

const TOKEN_MARKS = "!#$%&'*+-.^_`|~"

/** Classes of each byte, as a combination of the bits above. */
export const BYTE_CLASS: Uint8Array = Uint8Array.from({ length: 256 }, (_, byte) => {
  const char = String.fromCharCode(byte)
  const isVisible = byte > 0x20 && byte < 0x7f
  const isAlphanumeric = /[0-9A-Za-z]/.test(char)
  const isText = isVisible || byte >= 0x80 || char === ' '
  return (
    (isAlphanumeric || TOKEN_MARKS.includes(char) ? TOKEN : 0) |
    (isText || char === '\t' ? VALUE : 0) |
    (isText ? LINE : 0) |
    (isVisible && char !== '#' ? TARGET : 0) |
    (isAlphanumeric || '-._'.includes(char) ? HOST : 0)
  )
})

/** Whether `text` from `from` to `to` is not empty and has only characters of one class. */
export function consistsOf(text: string, from: number, to: number, bits: number): boolean {
  for (let at = from; at < to; at += 1) {
    // The string is latin1: no character is above 255.
    if (((BYTE_CLASS[text.charCodeAt(at)] as number) & bits) === 0) return false
  }
  return to > from
}

/** Longest start line, and longest fields, that are kept for messages with the same bytes. */
export const MAX_KEPT_BYTES = 1_024

/** The text, latin1, in memory of its own: a part of Node's pool would keep 8 KiB. */
export function ownBytes(text: string): Buffer {
  const bytes = Buffer.allocUnsafeSlow(text.length)
  bytes.write(text, 'latin1')
  return bytes
}

/** End of a body (RFC 9112 6.3): the number of bytes, or a constant below. */
export type BodyFraming = number

/** The body ends with its last chunk and the trailers. */
export const CHUNKED: BodyFraming = -1
/** The body ends with the connection; responses only. */
export const UNTIL_CLOSE: BodyFraming = -2

/**
 * - `malformed`: breaks a rule of RFC 9110 or RFC 9112.
 * - `too-large`: exceeds a limit of the gateway.
 * - `unmet-expectation`, `not-implemented`: requests a feature that the gateway does not offer.
 */
export type SyntaxFault = 'malformed' | 'too-large' | 'unmet-expectation' | 'not-implemented'

/** A message that is not passed on. The text is a clause without a full stop: `two Host fields`. */
export class HttpSyntaxError extends Error {
  override readonly name = 'HttpSyntaxError'
  readonly fault: SyntaxFault

  constructor(text: string, fault: SyntaxFault = 'malformed') {
    super(text)
    this.fault = fault
  }
}
