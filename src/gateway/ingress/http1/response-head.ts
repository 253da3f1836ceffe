import { type BodyFraming, CHUNKED, UNTIL_CLOSE } from './body-framing.ts'
import type { ConnectionOptions } from './connection-options.ts'
import type { ScannedHead } from './head-scanner.ts'
import { HttpSyntaxError } from './http-syntax-error.ts'
import { knownField } from './known-field.ts'
import { readMessageFields } from './message-fields.ts'
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
}

const VERSION = Buffer.from('HTTP/')
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
  return {
    status,
    reason: match[3] ?? '',
    fields: repeatsLength ? withOneLength(fields) : fields,
    framing,
    connection,
    keepAlive: framing !== UNTIL_CLOSE && !connection.close && (isHttp11 || connection.keepAlive),
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
