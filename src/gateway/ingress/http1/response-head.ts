import { type BodyFraming, CHUNKED, UNTIL_CLOSE } from './body-framing.ts'
import type { ConnectionOptions } from './connection-options.ts'
import type { ScannedHead } from './head-scanner.ts'
import { HttpSyntaxError } from './http-syntax-error.ts'
import { readMessageFields } from './message-fields.ts'

/** A checked response head of a device's service. */
export interface ResponseHead {
  readonly status: number
  /** May be empty. */
  readonly reason: string
  /** Name and value in turn, in the order and case of their arrival. */
  readonly fields: readonly string[]
  readonly framing: BodyFraming
  readonly connection: ConnectionOptions
  /** True when the proxy stream may carry another request after this response. */
  readonly keepAlive: boolean
}

const STATUS_LINE = /^HTTP\/1\.([01]) ([1-9][0-9]{2})(?: (.*))?$/

/** Understands a scanned head as the response to a request (RFC 9112 4 and 6.3). */
export function parseResponseHead({ line, fields }: ScannedHead, method: string): ResponseHead {
  const match = STATUS_LINE.exec(line)
  if (!match) throw new HttpSyntaxError('a status line that is none')
  const status = Number(match[2])
  const { isChunked, contentLength, connection } = readMessageFields(fields)
  const isHttp11 = match[1] === '1'
  if (isChunked && !isHttp11) throw new HttpSyntaxError('a Transfer-Encoding in HTTP/1.0')
  const framing = hasNoBody(status, method)
    ? 0
    : isChunked
      ? CHUNKED
      : (contentLength ?? UNTIL_CLOSE)
  return {
    status,
    reason: match[3] ?? '',
    fields,
    framing,
    connection,
    keepAlive: framing !== UNTIL_CLOSE && !connection.close && (isHttp11 || connection.keepAlive),
  }
}

/** True for responses that end with their head (RFC 9112 6.3). */
export function hasNoBody(status: number, method: string): boolean {
  return method === 'HEAD' || status < 200 || status === 204 || status === 304
}
