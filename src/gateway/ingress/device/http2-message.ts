import type { OutgoingHttpHeaders } from 'node:http2'
import { STATUS_CODES } from '../../../base/net/node-http.ts'
import type { DeviceRequest } from '../common/incoming-request.ts'
import type { HeadScanner } from '../syntax/head-scanner.ts'
import {
  CHUNKED,
  checkFields,
  type HeadLimits,
  HttpSyntaxError,
  NO_OPTIONS,
} from '../syntax/http-syntax.ts'
import { hasField, headersOf, readMessageFields, withoutFields } from '../syntax/message-fields.ts'
import {
  beginsLikeHttp1,
  hasNoBody,
  parseResponseHead,
  type ResponseHead,
} from '../syntax/response-head.ts'
import {
  type DialFailure,
  dialFailureIn,
  mayBeDialFailure,
  resemblesDialFailure,
} from './forward.ts'

/** A server that answers in HTTP/1.1 did not understand the method, and sends a body also to HEAD. */
const METHOD = 'GET'

/**
 * An answer in place of HTTP/2. The SDK reports in HTTP/1.1 that it reaches no service; a service without
 * HTTP/2 may send anything.
 */
export class ForeignAnswer {
  readonly #scanner: HeadScanner
  #body: Buffer | undefined

  /** Not in the middle of a head. */
  constructor(scanner: HeadScanner) {
    this.#scanner = scanner
  }

  /** The kind of answer; undefined until it is known. */
  read(chunk: Buffer): DialFailure | 'invalid' | undefined {
    try {
      return this.#read(chunk)
    } catch (error) {
      if (!(error instanceof HttpSyntaxError)) throw error
      return 'invalid'
    }
  }

  #read(chunk: Buffer): DialFailure | 'invalid' | undefined {
    let body = chunk
    if (!this.#body) {
      if (this.#scanner.heldBytes === 0 && !beginsLikeHttp1(chunk)) return 'invalid'
      const end = this.#scanner.scan(chunk, 0)
      if (end === -1) return undefined
      const head = parseResponseHead(this.#scanner.takeHead(), METHOD)
      if (!resemblesDialFailure(head)) return 'invalid'
      this.#body = Buffer.alloc(0)
      body = chunk.subarray(end)
    }
    this.#body = Buffer.concat([this.#body, body])
    const failure = dialFailureIn(this.#body, METHOD)
    if (failure) return failure
    return mayBeDialFailure(this.#body) ? undefined : 'invalid'
  }
}

const STATUS = /^[1-9][0-9]{2}$/

/** The head of a request as Node sends it: the host is its authority (RFC 9113 8.3.1). */
export function requestHeaders(
  { method, target, fields }: DeviceRequest,
  scheme: 'http' | 'https',
): OutgoingHttpHeaders {
  const headers = headersOf(fields)
  const authority = headers.host
  delete headers.host
  // Nothing else may stand in it (RFC 9113 8.2.2), and nothing else was passed on.
  if (hasField(fields, 'te')) headers.te = 'trailers'
  return Object.assign(headers, {
    ':method': method,
    ':scheme': scheme,
    ':path': target,
    ...(authority !== undefined && { ':authority': authority }),
  })
}

/**
 * Reads the head of a response like one of HTTP/1.1, for visitors of either version. A body of unknown
 * length, or with trailers, is sent in chunks. `raw` alternates name and value. `isWhole`: the stream ends
 * with it. `wantsTrailers`: the client supports trailers. Throws HttpSyntaxError.
 */
export function readResponseHead(
  raw: readonly string[],
  method: string,
  isWhole: boolean,
  { limits, wantsTrailers }: { readonly limits: HeadLimits; readonly wantsTrailers: boolean },
): ResponseHead {
  checkFields(raw, limits)
  const { status, fields } = split(raw)
  const { contentLength, isChunked } = readMessageFields(fields, 'response')
  if (isChunked) throw new HttpSyntaxError('a Transfer-Encoding')
  const head = { status, reason: STATUS_CODES[status] ?? '', connection: NO_OPTIONS }
  if (hasNoBody(status, method)) return { ...head, fields, framing: 0, keepAlive: true }
  if (isWhole) {
    if (contentLength) throw new HttpSyntaxError('a Content-Length without a body')
    const length = contentLength === undefined ? ['content-length', '0'] : []
    return { ...head, fields: [...fields, ...length], framing: 0, keepAlive: true }
  }
  const mayTrail = wantsTrailers || hasField(fields, 'trailer')
  if (contentLength !== undefined && !mayTrail) {
    return { ...head, fields, framing: contentLength, keepAlive: true }
  }
  const chunked = [...withoutFields(fields, 'content-length'), 'transfer-encoding', 'chunked']
  return { ...head, fields: chunked, framing: CHUNKED, contentLength, keepAlive: true }
}

function split(raw: readonly string[]): { status: number; fields: string[] } {
  const fields: string[] = []
  let status = ''
  for (let at = 0; at < raw.length; at += 2) {
    const name = raw[at] as string
    if (name === ':status') status = raw[at + 1] as string
    else if (!name.startsWith(':')) fields.push(name, raw[at + 1] as string)
  }
  if (!STATUS.test(status)) throw new HttpSyntaxError('an invalid status')
  return { status: Number(status), fields }
}
