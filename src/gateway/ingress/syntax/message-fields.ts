import type { OutgoingHttpHeaders } from 'node:http2'
import { STATUS_CODES } from '../../../base/net/node-http.ts'
import {
  addConnectionOptions,
  type ConnectionOptions,
  HttpSyntaxError,
  NO_OPTIONS,
} from './http-syntax.ts'

/** What a connection of HTTP/1 says about itself; in HTTP/2 it makes a message malformed (RFC 9113 8.2.2). */
const OF_HTTP1: ReadonlySet<string> = new Set([
  'connection',
  'http2-settings',
  'keep-alive',
  'proxy-connection',
  'te',
  'transfer-encoding',
  'upgrade',
])

/** What cannot be put in one line, or is not by everybody (RFC 9110 5.3). */
const OF_SEVERAL_LINES: ReadonlySet<string> = new Set([
  'cookie',
  'proxy-authenticate',
  'set-cookie',
  'www-authenticate',
])

/** Fields of HTTP/1, name and value in turn, as Node takes them for a stream. */
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

/** A head as it goes on the wire, latin1; `fields` alternates name and value. */
export function formatHead(line: string, fields: readonly string[]): string {
  return `${line}\r\n${formatFields(fields)}\r\n`
}

/** The lines of fields, without the empty line behind them. */
export function formatFields(fields: readonly string[]): string {
  let text = ''
  for (let at = 0; at < fields.length; at += 2) text += `${fields[at]}: ${fields[at + 1]}\r\n`
  return text
}

/** A status line; without a reason of its own the status gets the usual one. */
export function statusLine(status: number, reason = STATUS_CODES[status] ?? ''): string {
  return `HTTP/1.1 ${status} ${reason}`
}

/** Whether one of the fields has the name, which is in lower case. */
export function hasField(fields: readonly string[], name: string): boolean {
  return fields.some((text, at) => at % 2 === 0 && text.toLowerCase() === name)
}

/** The fields but those with one of the names, which are in lower case. */
export function withoutFields(fields: readonly string[], ...names: KnownField[]): string[] {
  const kept: string[] = []
  for (let at = 0; at < fields.length; at += 2) {
    const name = fields[at] as string
    const known = knownField(name)
    if (known === undefined || !names.includes(known)) kept.push(name, fields[at + 1] as string)
  }
  return kept
}

/** The fields that a gateway has to look at, lower case; all others pass as they are. */
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

/** No two known names share length and first letter, so one look-up finds the only candidate. */
const slotOf = (length: number, firstCode: number) => length * 32 + (firstCode & 31)

const BY_SLOT: ReadonlyMap<number, KnownField> = new Map(
  KNOWN_FIELDS.map((field) => [slotOf(field.length, field.charCodeAt(0)), field]),
)

/**
 * Which known field a server may take `name` for that sees `_` and `-` as one, as the variables of
 * CGI do (RFC 3875 4.1.18).
 */
function resembledField(name: string): KnownField | undefined {
  return name.includes('_') ? knownField(name.replaceAll('_', '-')) : undefined
}

/** Which known field `name` is, in any case. Cheap: it runs for each field of each message. */
export function knownField(name: string): KnownField | undefined {
  const candidate = BY_SLOT.get(slotOf(name.length, name.charCodeAt(0)))
  return candidate !== undefined && (name === candidate || name.toLowerCase() === candidate)
    ? candidate
    : undefined
}

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

/** The fields that say where a message goes, where it ends and what becomes of its connection. */
export interface MessageFields {
  host: string | undefined
  contentLength: number | undefined
  /** It is said again, and the same; only a response may (RFC 9110 8.6). */
  repeatsLength: boolean
  isChunked: boolean
  connection: ConnectionOptions
  keepAlive: string | undefined
  upgrade: string | undefined
  expect: string | undefined
  te: string | undefined
}

/**
 * Reads them out of alternating names and values. Throws HttpSyntaxError when two parties could
 * see two ends of the message (RFC 9112 6.1 and 6.3), or somebody else behind it.
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

/** Digits only, and few enough to count with (RFC 9110 8.6). */
function parseContentLength(value: string): number {
  const length = Number(value)
  if (!/^[0-9]{1,16}$/.test(value) || !Number.isSafeInteger(length)) {
    throw new HttpSyntaxError('an invalid Content-Length')
  }
  return length
}
