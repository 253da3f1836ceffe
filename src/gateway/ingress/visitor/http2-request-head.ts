import { randomBytes } from 'node:crypto'
import type { IncomingHttpHeaders } from 'node:http2'
import {
  CHUNKED,
  checkFields,
  consistsOf,
  type HeadLimits,
  HttpSyntaxError,
  hostnameOf,
  NO_OPTIONS,
  TARGET,
} from '../syntax/http-syntax.ts'
import { hasField, readMessageFields, withoutFields } from '../syntax/message-fields.ts'
import {
  acceptsTrailers,
  checkMethod,
  expectsContinue,
  type RequestHead,
} from '../syntax/request-head.ts'

/** A request by these methods states the length of an empty body (RFC 9110 8.6). */
const BODY_METHODS: ReadonlySet<string> = new Set(['POST', 'PUT', 'PATCH'])
/** Names with capitals elsewhere than at the start of each part. */
const SPELLINGS: ReadonlyMap<string, string> = new Map([
  ['te', 'TE'],
  ['dnt', 'DNT'],
  ['sec-websocket-key', 'Sec-WebSocket-Key'],
  ['sec-websocket-version', 'Sec-WebSocket-Version'],
  ['sec-websocket-protocol', 'Sec-WebSocket-Protocol'],
  ['sec-websocket-extensions', 'Sec-WebSocket-Extensions'],
])

/** Length of the key in a handshake that the gateway makes for a visitor (RFC 6455 4.1). */
const KEY_BYTES = 16

/**
 * Converts the head of a stream (RFC 9113 8.3) to the HTTP/1.1 request for the device. The authority becomes
 * `host`, cookies become one field, and a body of unknown length is sent in chunks. A WebSocket (RFC 8441)
 * becomes an HTTP/1.1 upgrade. `raw` alternates name and value. Throws HttpSyntaxError.
 */
export function readRequestHead(
  pseudo: IncomingHttpHeaders,
  raw: readonly string[],
  isWhole: boolean,
  limits: HeadLimits,
): RequestHead {
  const isWebSocket = isExtendedConnect(pseudo)
  const { fields, authority } = readFields(raw, limits)
  const method = isWebSocket ? 'GET' : (pseudo[':method'] ?? '')
  checkMethod(method)
  const found = readMessageFields(fields, 'request')
  const { host } = found
  if (host === undefined) throw new HttpSyntaxError('no :authority')
  if (authority !== undefined && authority !== host) {
    throw new HttpSyntaxError('a Host that differs from :authority')
  }
  // The device would receive the length without the bytes, and read them from the next request.
  if ((isWhole || isWebSocket) && found.contentLength) {
    throw new HttpSyntaxError('a Content-Length without a body')
  }
  // With a length there is no place for trailers after the body.
  const length = hasField(fields, 'trailer') ? CHUNKED : found.contentLength
  const bodyLength = isWhole || isWebSocket ? 0 : (length ?? CHUNKED)
  if (bodyLength === CHUNKED) fields.push('transfer-encoding', 'chunked')
  const isEmpty = bodyLength === 0 && found.contentLength === undefined
  if (isEmpty && BODY_METHODS.has(method)) fields.push('content-length', '0')
  if (isWebSocket) fields.push('sec-websocket-key', randomBytes(KEY_BYTES).toString('base64'))
  return {
    method,
    target: checkTarget(pseudo[':path'] ?? '', method),
    version: '2.0',
    visitorVersion: undefined,
    fields: withUsualSpelling(
      bodyLength === CHUNKED ? withoutFields(fields, 'content-length') : fields,
    ),
    host,
    hostname: hostnameOf(host),
    framing: bodyLength,
    connection: NO_OPTIONS,
    upgrade: isWebSocket ? 'websocket' : undefined,
    expectsContinue: expectsContinue(found.expect),
    acceptsTrailers: acceptsTrailers(found.te),
    keepAlive: true,
  }
}

function isExtendedConnect(pseudo: IncomingHttpHeaders): boolean {
  if (pseudo[':method'] !== 'CONNECT') return false
  if (pseudo[':protocol'] === 'websocket') return true
  throw new HttpSyntaxError(
    'the method CONNECT for a protocol other than WebSocket',
    'not-implemented',
  )
}

function readFields(
  raw: readonly string[],
  limits: HeadLimits,
): { fields: string[]; authority: string | undefined } {
  const fields: string[] = []
  let authority: string | undefined
  let cookie: string | undefined
  checkFields(raw, limits)
  for (let at = 0; at < raw.length; at += 2) {
    const name = raw[at] as string
    const value = raw[at + 1] as string
    if (name === ':authority') authority = value
    else if (name === 'cookie') cookie = cookie === undefined ? value : `${cookie}; ${value}`
    else if (!name.startsWith(':')) fields.push(name, value)
  }
  if (cookie !== undefined) fields.push('cookie', cookie)
  const hasHost = fields.some((name, at) => at % 2 === 0 && name === 'host')
  if (authority !== undefined && !hasHost) fields.unshift('host', authority)
  return { fields, authority }
}

/** HTTP/2 names are lower case. Servers of some devices only know the usual spelling of HTTP/1.1 clients. */
function withUsualSpelling(fields: string[]): string[] {
  for (let at = 0; at < fields.length; at += 2) {
    const name = fields[at] as string
    fields[at] = SPELLINGS.get(name) ?? name.replace(/(?:^|-)[a-z]/g, (part) => part.toUpperCase())
  }
  return fields
}

function checkTarget(path: string, method: string): string {
  const isPath = path.startsWith('/') || (path === '*' && method === 'OPTIONS')
  if (isPath && consistsOf(path, 0, path.length, TARGET)) return path
  throw new HttpSyntaxError('an invalid request target')
}
