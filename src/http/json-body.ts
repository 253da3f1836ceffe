import { isUtf8 } from 'node:buffer'
import type { NextFunction, Request, RequestHandler } from 'express'
import { AppError } from '../base/app-error.ts'
import { isDeeper } from '../base/json-depth.ts'
import { jsonErrorPosition } from '../base/json-error-position.ts'
import { Semaphore } from '../base/limit/semaphore.ts'

/** The largest body that is read unless a path takes more, and the deepest nesting in it. */
const MAX_BYTES = 64 * 1024
const MAX_DEPTH = 32
/** Of larger ones so many are read at once; the others wait in their sockets. */
const LARGE_AT_ONCE = 2
/** RFC 8259: JSON is UTF-8, and the charset parameter says nothing else. */
const JSON_TYPE = /^application\/json[ \t]*(;[ \t]*charset="?utf-8"?[ \t]*)?$/i

/**
 * Puts the JSON of the body into `request.body`. Throws AppError `not-json`, `body-too-large` or
 * `invalid-json`. A form of another type would reach us from any web page without a preflight.
 */
export const jsonBody: RequestHandler = (request, _response, next) =>
  takeBody(request, () => readBody(request, MAX_BYTES), next)

/** The same for a path whose bodies may be larger. */
export function largeJsonBody(maxBytes: number): RequestHandler {
  const semaphore = new Semaphore(LARGE_AT_ONCE)
  return (request, _response, next) =>
    takeBody(request, () => semaphore.run(() => readBody(request, maxBytes)), next)
}

async function takeBody(
  request: Request,
  read: () => Promise<Buffer>,
  next: NextFunction,
): Promise<void> {
  refuseOtherTypes(request)
  const bytes = await read()
  if (!isUtf8(bytes)) throw invalidJson('The body is not UTF-8.')
  request.body = parseJson(bytes.toString())
  next()
}

function refuseOtherTypes(request: Request): void {
  if (!JSON_TYPE.test(request.get('content-type') ?? '')) {
    throw new AppError('not-json', 'Send the body as content-type: application/json, in UTF-8.')
  }
  if (!/^(identity)?$/i.test(request.get('content-encoding') ?? '')) {
    throw new AppError('not-json', 'Send the body without a content-encoding.')
  }
}

async function readBody(request: Request, maxBytes: number): Promise<Buffer> {
  if (Number(request.get('content-length') ?? 0) > maxBytes) throw bodyTooLarge(request, maxBytes)
  const chunks: Buffer[] = []
  let sizeBytes = 0
  for await (const chunk of chunksOf(request)) {
    sizeBytes += chunk.length
    if (sizeBytes > maxBytes) throw bodyTooLarge(request, maxBytes)
    chunks.push(chunk)
  }
  return Buffer.concat(chunks)
}

/** The stream outlives a refusal: its connection still has to carry the answer. */
async function* chunksOf(request: Request): AsyncGenerator<Buffer> {
  try {
    yield* request.iterator({ destroyOnReturn: false })
  } catch (error) {
    throw new AppError('malformed-request', 'The body ended too early.', { cause: error })
  }
}

function parseJson(text: string): unknown {
  if (text.trim() === '') throw invalidJson('The body is empty.')
  const value = tryParse(text)
  if (isDeeper(value, MAX_DEPTH)) throw invalidJson(`The body is nested deeper than ${MAX_DEPTH}.`)
  return value
}

function tryParse(text: string): unknown {
  try {
    return JSON.parse(text)
  } catch (error) {
    const { line, column } = jsonErrorPosition(text) ?? { line: 1, column: 1 }
    throw invalidJson(`The body stops being JSON in line ${line}, column ${column}.`, error)
  }
}

/** What still comes is read and dropped, so that the answer is not lost with the connection. */
function bodyTooLarge(request: Request, maxBytes: number): AppError {
  request.resume()
  return new AppError('body-too-large', `The body may have at most ${maxBytes / 1024} KiB.`)
}

function invalidJson(detail: string, cause?: unknown): AppError {
  return new AppError('invalid-json', detail, { cause })
}
