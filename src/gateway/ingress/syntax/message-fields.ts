import type { OutgoingHttpHeaders } from 'node:http2'
import { STATUS_CODES } from '../../../base/net/node-http.ts'
import type { ScannedHead } from './head-scanner.ts'
import {
  addConnectionOptions,
  type ConnectionOptions,
  HttpSyntaxError,
  MAX_KEPT_BYTES,
  NO_OPTIONS,
  ownBytes,
} from './http-syntax.ts'

/** Fields about an HTTP/1 connection. In HTTP/2 they make a message malformed (RFC 9113 8.2.2). */
const OF_HTTP1: ReadonlySet<string> = new Set([
  'connection',
  'http2-settings',
  'keep-alive',
  'proxy-connection',
  'te',
  'transfer-encoding',
  'upgrade',
])

/** Fields that cannot be joined in one line, or not by every implementation (RFC 9110 5.3). */
const OF_SEVERAL_LINES: ReadonlySet<string> = new Set([
  'cookie',
  'proxy-authenticate',
  'set-cookie',
  'www-authenticate',
])

/** Converts HTTP/1 fields, alternating name and value, to Node's headers of a stream. */
export function headersOf(fields: readonly string[]): OutgoingHttpHeaders {
  const headers: OutgoingHttpHeaders = Object.create(null)
  for (let at = 0; at < fields.length; at += 2) {
    const name = (fields[at] as string).toLowerCase()
    if (OF_HTTP1.has(name)) continue
    const value = fields[at + 1] as string
    const before = headers[name]
    if (before === undefined) headers[name] = value
    else if (!OF_SEVERAL_LINES.has(name)) headers[name] = `${before}, ${value}`
    else if (Array.isArray(before)) before.push(value)
    else headers[name] = [String(before), value]
  }
  return headers
}

/** Formats a head for the wire, latin1; `fields` alternates name and value. */
export function formatHead(line: string, fields: readonly string[]): string {
  return `${line}\r\n${formatFields(fields)}\r\n`
}

/** Encodes a head, latin1. Nobody may change the bytes: heads that recur share them. */
export function encodeHead(line: string, fields: readonly string[]): Buffer {
  const kept = FORMATTED.get(fields)
  return kept ? kept.withLine(line) : Buffer.from(formatHead(line, fields), 'latin1')
}

/** Lines of fields, as text and as bytes, and the bytes of the last head that was sent twice with them. */
class FormattedFields {
  readonly text: string
  readonly #bytes: Buffer
  #lastLine = ''
  #head: Buffer | undefined

  constructor(text: string) {
    this.text = text
    this.#bytes = ownBytes(`${text}\r\n`)
  }

  withLine(line: string): Buffer {
    const isSame = line === this.#lastLine
    if (isSame && this.#head) return this.#head
    if (isSame) {
      this.#head = ownBytes(`${line}\r\n${this.text}\r\n`)
      return this.#head
    }
    this.#head = undefined
    if (line.length <= MAX_KEPT_BYTES) this.#lastLine = line
    const lineBytes = line.length + '\r\n'.length
    const head = Buffer.allocUnsafe(lineBytes + this.#bytes.length)
    head.write(`${line}\r\n`, 0, lineBytes, 'latin1')
    head.set(this.#bytes, lineBytes)
    return head
  }
}

const FORMATTED = new WeakMap<readonly string[], FormattedFields>()

/**
 * Longest lines of fields that are kept. With the facts of the client, fields are up to four times as long as
 * received. A policy may add much more.
 */
const MAX_FORMATTED_BYTES = 4 * MAX_KEPT_BYTES

/** Keeps the lines of these fields, which nobody changes, as long as the array lives, unless they are long. */
export function keepFormatted(fields: readonly string[]): void {
  if (FORMATTED.has(fields) || lengthOfFields(fields) > MAX_FORMATTED_BYTES) return
  FORMATTED.set(fields, new FormattedFields(formatFields(fields)))
}

/** Whether the lines of these fields are kept, because their head recurs. */
export const isKept = (fields: readonly string[]) => FORMATTED.has(fields)

/** Formats the lines of fields, without the empty line after them. */
export function formatFields(fields: readonly string[]): string {
  const kept = FORMATTED.get(fields)
  if (kept !== undefined) return kept.text
  let text = ''
  for (let at = 0; at < fields.length; at += 2) text += `${fields[at]}: ${fields[at + 1]}\r\n`
  return text
}

/** Returns the number of bytes that `formatFields` gives. */
export function lengthOfFields(fields: readonly string[]): number {
  const kept = FORMATTED.get(fields)
  if (kept !== undefined) return kept.text.length
  return fields.reduce((sum, { length }) => sum + length + ': '.length, 0)
}

/** Formats a status line; the default reason is the usual text of the status. */
export function statusLine(status: number, reason = STATUS_CODES[status] ?? ''): string {
  return `HTTP/1.1 ${status} ${reason}`
}

/** Whether a field has the name, which is in lower case. */
export function hasField(fields: readonly string[], name: string): boolean {
  return fields.some((text, at) => at % 2 === 0 && text.toLowerCase() === name)
}

/** Returns the fields without the given names, which are in lower case. */
export function withoutFields(fields: readonly string[], ...names: KnownField[]): string[] {
  const kept: string[] = []
  for (let at = 0; at < fields.length; at += 2) {
    const name = fields[at] as string
    const known = knownField(name)
    if (known === undefined || !names.includes(known)) kept.push(name, fields[at + 1] as string)
  }
  return kept
}

/** Lower-case names of fields that the gateway reads. Other fields pass unchanged. */
export const KNOWN_FIELDS = [
  'te',
  'host',
  'expect',
  'upgrade',
  'forwarded',
  'x-real-ip',
  'connection',
  'keep-alive',
  'x-policy-hops',
  'content-length',
  'http2-settings',
  'x-forwarded-for',
  'ngrok-error-code',
  'proxy-connection',
  'x-forwarded-host',
  'transfer-encoding',
  'x-forwarded-proto',
] as const

type KnownField = (typeof KNOWN_FIELDS)[number]

/** No two known names share length and first letter, so one lookup finds the only candidate. */
const slotOf = (length: number, firstCode: number) => length * 32 + (firstCode & 31)

const BY_SLOT: ReadonlyMap<number, KnownField> = new Map(
  KNOWN_FIELDS.map((field) => [slotOf(field.length, field.charCodeAt(0)), field]),
)

/**
 * Returns the known field that a server may read `name` as, if it treats `_` and `-` alike, as CGI variables
 * do (RFC 3875 4.1.18).
 */
function resembledField(name: string): KnownField | undefined {
  return name.includes('_') ? knownField(name.replaceAll('_', '-')) : undefined
}

/**
 * Returns the known field with this name, in any case. Must be cheap: it runs for each field of each message.
 */
export function knownField(name: string): KnownField | undefined {
  const candidate = BY_SLOT.get(slotOf(name.length, name.charCodeAt(0)))
  return candidate !== undefined && (name === candidate || name.toLowerCase() === candidate)
    ? candidate
    : undefined
}

/**
 * Fields that may not come after a body (RFC 9110 6.5.1): the message is already framed, routed and admitted.
 * Servers that merge trailers into the headers would still trust them.
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

/** Whether a field means the same before and after a body. */
export function mayTrail(name: string): boolean {
  const key = name.toLowerCase().replaceAll('_', '-')
  return !NEVER_LATE.has(key) && !NEVER_LATE_KINDS.test(key)
}

/** Fields that decide the destination and the end of a message, and the future of its connection. */
export interface MessageFields {
  host: string | undefined
  contentLength: number | undefined
  /** The length is stated twice with the same value; only allowed in a response (RFC 9110 8.6). */
  repeatsLength: boolean
  isChunked: boolean
  connection: ConnectionOptions
  keepAlive: string | undefined
  upgrade: string | undefined
  expect: string | undefined
  te: string | undefined
}

const OF_RECURRING = new WeakMap<readonly string[], MessageFields>()

/** Returns what `readMessageFields` finds. For fields that recur, it looks once. */
export function findMessageFields(
  { fields, recurs }: ScannedHead,
  kind: 'request' | 'response',
): Readonly<MessageFields> {
  if (!recurs) return readMessageFields(fields, kind)
  const known = OF_RECURRING.get(fields)
  if (known) return known
  const found = readMessageFields(fields, kind)
  OF_RECURRING.set(fields, found)
  return found
}

/**
 * Finds these fields among alternating names and values. Throws HttpSyntaxError if two parties could disagree
 * on the end of the message (RFC 9112 6.1 and 6.3), its host or its sender.
 */
export function readMessageFields(
  fields: readonly string[],
  kind: 'request' | 'response',
): MessageFields {
  const found: MessageFields = {
    host: undefined,
    contentLength: undefined,
    repeatsLength: false,
    isChunked: false,
    connection: NO_OPTIONS,
    keepAlive: undefined,
    upgrade: undefined,
    expect: undefined,
    te: undefined,
  }
  for (let at = 0; at < fields.length; at += 2) {
    const name = fields[at] as string
    const known = knownField(name)
    if (known !== undefined) note(found, known, fields[at + 1] as string)
    else refuseLookAlike(name)
  }
  if (found.repeatsLength && kind === 'request') {
    throw new HttpSyntaxError('two Content-Length fields')
  }
  if (found.isChunked && found.contentLength !== undefined) {
    throw new HttpSyntaxError('both Content-Length and Transfer-Encoding')
  }
  return found
}

function note(found: MessageFields, name: string, value: string): void {
  switch (name) {
    case 'host':
      if (found.host !== undefined) throw new HttpSyntaxError('two Host fields')
      found.host = value
      break
    case 'content-length':
      noteLength(found, parseContentLength(value))
      break
    case 'transfer-encoding':
      if (found.isChunked) throw new HttpSyntaxError('two Transfer-Encoding fields')
      if (value.toLowerCase() !== 'chunked') {
        throw new HttpSyntaxError('a Transfer-Encoding other than chunked')
      }
      found.isChunked = true
      break
    case 'connection':
      found.connection = addConnectionOptions(found.connection, value)
      break
    case 'keep-alive':
      found.keepAlive = found.keepAlive === undefined ? value : `${found.keepAlive}, ${value}`
      break
    case 'upgrade':
      found.upgrade = found.upgrade === undefined ? value : `${found.upgrade}, ${value}`
      break
    case 'expect':
      found.expect = found.expect === undefined ? value : `${found.expect}, ${value}`
      break
    case 'te':
      found.te = found.te === undefined ? value : `${found.te}, ${value}`
  }
}

function noteLength(found: MessageFields, length: number): void {
  found.repeatsLength = found.contentLength === length
  if (found.contentLength !== undefined && !found.repeatsLength) {
    throw new HttpSyntaxError('two Content-Length fields')
  }
  found.contentLength = length
}

function refuseLookAlike(name: string): void {
  const resembled = resembledField(name)
  if (resembled === undefined) return
  throw new HttpSyntaxError(`the field ${name}, which servers may read as ${resembled}`)
}

/** Only digits, and few enough for an exact number (RFC 9110 8.6). */
function parseContentLength(value: string): number {
  const length = Number(value)
  if (!/^[0-9]{1,16}$/.test(value) || !Number.isSafeInteger(length)) {
    throw new HttpSyntaxError('an invalid Content-Length')
  }
  return length
}
