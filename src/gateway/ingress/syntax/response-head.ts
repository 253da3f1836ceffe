import type { ScannedHead } from './head-scanner.ts'
import {
  type BodyFraming,
  CHUNKED,
  type ConnectionOptions,
  HttpSyntaxError,
  UNTIL_CLOSE,
} from './http-syntax.ts'
import { knownField, readMessageFields } from './message-fields.ts'
import { spliceable } from './request-head.ts'

/** A checked response head of a device's service. */
export interface ResponseHead {
  readonly status: number
  /** May be empty. */
  readonly reason: string
  /** Name and value in turn, in the order and case of their arrival. */
  readonly fields: readonly string[]
  readonly framing: BodyFraming
  /** Where chunks stand in for it, because trailers may follow; HTTP/2 has both. */
  readonly contentLength?: number | undefined
  readonly connection: ConnectionOptions
  /** True when the proxy stream may carry another request after this response. */
  readonly keepAlive: boolean
  /** For how long it may, where the service says so. */
  readonly keepMs?: number | undefined
}

const VERSION = Buffer.from('HTTP/')
/** A service that closes an unused connection after N s: no request is on its way to it by then. */
const KEEP_MARGIN_MS = 1_000
const KEEP_TIMEOUT = /(?:^|[,; \t])timeout[ \t]*=[ \t]*"?([0-9]{1,9})/i
const KEEP_MAX = /(?:^|[,; \t])max[ \t]*=[ \t]*"?([0-9]{1,9})/i
const STATUS_LINE = /^HTTP\/1\.([01]) ([1-9][0-9]{2})(?: (.*))?$/

/** Understands a scanned head as the response to a request (RFC 9112 4 and 6.3). */
export function parseResponseHead({ line, fields }: ScannedHead, method: string): ResponseHead {
  const match = STATUS_LINE.exec(line)
  if (!match) throw new HttpSyntaxError('an invalid status line')
  const status = Number(match[2])
  const found = readMessageFields(fields, 'response')
  const { isChunked, upgrade, contentLength, connection, repeatsLength } = found
  const isHttp11 = match[1] === '1'
  if (isChunked && !isHttp11) throw new HttpSyntaxError('a Transfer-Encoding in HTTP/1.0')
  // The request asked for none of them, whatever it asked for.
  if (status === 101 && spliceable(upgrade) !== upgrade) {
    throw new HttpSyntaxError('a switch to HTTP')
  }
  const framing = hasNoBody(status, method)
    ? 0
    : isChunked
      ? CHUNKED
      : (contentLength ?? UNTIL_CLOSE)
  const isPersistent =
    framing !== UNTIL_CLOSE && !connection.close && (isHttp11 || connection.keepAlive)
  const keepMs = isPersistent ? keepMsOf(found.keepAlive) : 0
  return {
    status,
    reason: match[3] ?? '',
    fields: repeatsLength ? withOneLength(fields) : fields,
    framing,
    connection,
    keepAlive: keepMs !== 0,
    keepMs,
  }
}

/** True while what has come first may be a response of HTTP/1. */
export function beginsLikeHttp1(chunk: Buffer): boolean {
  const length = Math.min(chunk.length, VERSION.length)
  return chunk.compare(VERSION, 0, length, 0, length) === 0
}

/** True for responses that end with their head (RFC 9112 6.3). */
export function hasNoBody(status: number, method: string): boolean {
  return method === 'HEAD' || status < 200 || status === 204 || status === 304
}

/**
 * How long a connection may wait for another request by `Keep-Alive` (RFC 9112 C.2.2): its `timeout`
 * less a margin, and not at all where `max` leaves one request or none. Some servers count the
 * request that was answered, others do not. Undefined: the service does not say.
 */
function keepMsOf(keepAlive: string | undefined): number | undefined {
  if (keepAlive === undefined) return undefined
  const max = KEEP_MAX.exec(keepAlive)?.[1]
  if (max !== undefined && Number(max) <= 1) return 0
  const timeout = KEEP_TIMEOUT.exec(keepAlive)?.[1]
  return timeout === undefined ? undefined : Math.max(0, Number(timeout) * 1_000 - KEEP_MARGIN_MS)
}

/** Whoever reads the response next need not know what to make of two. */
function withOneLength(fields: readonly string[]): string[] {
  const kept: string[] = []
  let hasLength = false
  for (let at = 0; at < fields.length; at += 2) {
    const [name = '', value = ''] = fields.slice(at, at + 2)
    const isLength = knownField(name) === 'content-length'
    if (!isLength || !hasLength) kept.push(name, value)
    hasLength ||= isLength
  }
  return kept
}
