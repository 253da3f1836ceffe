import type { ScannedHead } from './head-scanner.ts'
import {
  type BodyFraming,
  CHUNKED,
  type ConnectionOptions,
  HttpSyntaxError,
  UNTIL_CLOSE,
} from './http-syntax.ts'
import { findMessageFields, knownField } from './message-fields.ts'
import { spliceable } from './request-head.ts'

/** A checked response head of a device's service. */
export interface ResponseHead {
  readonly status: number
  /** May be empty. */
  readonly reason: string
  /** Alternates name and value, in the received order and case. */
  readonly fields: readonly string[]
  /** Whether heads with the same array of fields follow, probably. */
  readonly recurs?: boolean | undefined
  readonly framing: BodyFraming
  /** Stated length of a body that is sent in chunks, because trailers may follow; HTTP/2 has both. */
  readonly contentLength?: number | undefined
  readonly connection: ConnectionOptions
  /** Whether the proxy stream may carry another request after this response. */
  readonly keepAlive: boolean
  /** Milliseconds for which it may, if the service states a limit. */
  readonly keepMs?: number | undefined
}

const VERSION = Buffer.from('HTTP/')
/**
 * Subtracted from the idle timeout of a service, so that no request is on its way when the service closes.
 */
const KEEP_MARGIN_MS = 1_000
const KEEP_TIMEOUT = /(?:^|[,; \t])timeout[ \t]*=[ \t]*"?([0-9]{1,9})/i
const KEEP_MAX = /(?:^|[,; \t])max[ \t]*=[ \t]*"?([0-9]{1,9})/i
const STATUS_LINE = /^HTTP\/1\.([01]) ([1-9][0-9]{2})(?: (.*))?$/

const REPEATED = new WeakMap<ScannedHead, ResponseHead>()

/** Parses a scanned head as the response to a request (RFC 9112 4 and 6.3), a repeated head once. */
export function parseResponseHead(scanned: ScannedHead, method: string): ResponseHead {
  // The same head has another meaning as a response to HEAD.
  if (!scanned.repeats || method === 'HEAD') return parseHead(scanned, method)
  const known = REPEATED.get(scanned)
  if (known) return known
  const head = parseHead(scanned, method)
  REPEATED.set(scanned, head)
  return head
}

function parseHead(scanned: ScannedHead, method: string): ResponseHead {
  const { line, fields, recurs } = scanned
  const match = STATUS_LINE.exec(line)
  if (!match) throw new HttpSyntaxError('an invalid status line')
  const status = Number(match[2])
  const found = findMessageFields(scanned, 'response')
  const { isChunked, upgrade, contentLength, connection, repeatsLength } = found
  const isHttp11 = match[1] === '1'
  if (isChunked && !isHttp11) throw new HttpSyntaxError('a Transfer-Encoding in HTTP/1.0')
  // No request to a service asks for such a protocol.
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
    recurs: recurs && !repeatsLength,
    framing,
    connection,
    keepAlive: keepMs !== 0,
    keepMs,
  }
}

/** Whether the first bytes may begin an HTTP/1 response. */
export function beginsLikeHttp1(chunk: Buffer): boolean {
  const length = Math.min(chunk.length, VERSION.length)
  return chunk.compare(VERSION, 0, length, 0, length) === 0
}

/** Whether a response ends with its head (RFC 9112 6.3). */
export function hasNoBody(status: number, method: string): boolean {
  return method === 'HEAD' || status < 200 || status === 204 || status === 304
}

/**
 * Milliseconds that a connection may wait for another request, by `Keep-Alive` (RFC 9112 C.2.2). It is the
 * `timeout` minus a margin, or 0 if `max` is 1 or less: some servers count the answered request in `max`,
 * others do not. Undefined: the service does not say.
 */
function keepMsOf(keepAlive: string | undefined): number | undefined {
  if (keepAlive === undefined) return undefined
  const max = KEEP_MAX.exec(keepAlive)?.[1]
  if (max !== undefined && Number(max) <= 1) return 0
  const timeout = KEEP_TIMEOUT.exec(keepAlive)?.[1]
  return timeout === undefined ? undefined : Math.max(0, Number(timeout) * 1_000 - KEEP_MARGIN_MS)
}

/** Removes repeated lengths, so that later readers need not handle two. */
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
