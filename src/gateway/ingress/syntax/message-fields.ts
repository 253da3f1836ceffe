import { addConnectionOptions, type ConnectionOptions, NO_OPTIONS } from './connection-options.ts'
import { HttpSyntaxError } from './http-syntax-error.ts'
import { knownField, resembledField } from './known-field.ts'

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
