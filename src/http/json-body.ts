import { isUtf8 } from 'node:buffer'
import type { Express, NextFunction, Request, RequestHandler, Response } from 'express'
import { AppError } from '../base/app-error.ts'
import { isDeeper, jsonErrorPosition } from '../base/json.ts'
import { peerNetwork } from '../base/net/network.ts'
import { callerOf } from './caller.ts'

interface FairSemaphoreOptions {
  /** Maximum number of tasks at once. */
  readonly limit: number
  /** Maximum number of tasks at once per key. */
  readonly perKey: number
}

interface Waiting {
  readonly key: string
  readonly begin: () => void
}

/** Limits the tasks that run at once, in total and per key. Other tasks wait in order. */
export class FairSemaphore {
  readonly #options: FairSemaphoreOptions
  readonly #line: Waiting[] = []
  readonly #running = new Map<string, number>()
  #total = 0

  constructor(options: FairSemaphoreOptions) {
    this.#options = options
  }

  /** True if a task below the limit of its key waits for a free slot. */
  get isShort(): boolean {
    return this.#line.some(({ key }) => this.#hasShare(key))
  }

  /** Settles like `work`, which starts when a slot is free. */
  async run<T>(key: string, work: () => Promise<T>): Promise<T> {
    if (this.#total < this.#options.limit && this.#hasShare(key)) this.#occupy(key)
    else await new Promise<void>((begin) => this.#line.push({ key, begin }))
    try {
      return await work()
    } finally {
      this.#release_(key)
    }
  }

  /** Gives the slot to the key with the fewest running tasks. Among equals, the first in line gets it. */
  #release_(key: string): void {
    this.#total -= 1
    const left = this.#heldBy(key) - 1
    if (left > 0) this.#running.set(key, left)
    else this.#running.delete(key)
    let next: Waiting | undefined
    for (const waiting of this.#line) {
      if (!this.#hasShare(waiting.key)) continue
      if (!next || this.#heldBy(waiting.key) < this.#heldBy(next.key)) next = waiting
    }
    if (!next) return
    this.#line.splice(this.#line.indexOf(next), 1)
    this.#occupy(next.key)
    next.begin()
  }

  #occupy(key: string): void {
    this.#total += 1
    this.#running.set(key, this.#heldBy(key) + 1)
  }

  #hasShare(key: string): boolean {
    return this.#heldBy(key) < this.#options.perKey
  }

  #heldBy(key: string): number {
    return this.#running.get(key) ?? 0
  }
}

/** Default limit for the size of a body. */
const MAX_BYTES = 64 * 1024
/** Maximum nesting depth of a body. */
export const MAX_DEPTH = 32
/** Checks of the transfer rate per grace period. */
const LOOKS = 5
/** Memory for large bodies that are read at the same time. Others wait in their sockets. */
const LARGE_BYTES = 16 * 1024 * 1024
/** Share of `LARGE_BYTES` per caller. */
const CALLER_PART = 1 / 4
const FORM_TYPE = /^application\/x-www-form-urlencoded\b/i
/** RFC 8259: JSON is UTF-8, so the charset parameter must not name another. */
const JSON_TYPE = /^application\/json[ \t]*(;[ \t]*charset="?utf-8"?[ \t]*)?$/i

/** Minimum transfer rate of a body. */
export interface BodyPace {
  /** No check before this time. */
  readonly graceMs: number
  /** Bytes per second, on average. */
  readonly leastRate: number
  /** The same while other callers wait for the slot. */
  readonly leastRateAwaited: number
}

const PACE: BodyPace = { graceMs: 5_000, leastRate: 1_024, leastRateAwaited: 16_384 }

/**
 * Parses the JSON body into `request.body`. Throws AppError `not-json`, `body-too-large`, `request-timeout`
 * or `invalid-json`. Other content types are rejected, because any web page can send a form without a
 * preflight.
 */
export const jsonBody = limited(MAX_BYTES, (request, response, next) => {
  const read = () => readBody(request, MAX_BYTES, PACE, () => false)
  return takeBody(request, response, read, next)
})

/** A handler that reads a body of at most `maxBytes`. */
export type BodyReader = RequestHandler & { readonly maxBytes: number }

/** Marks a handler with the limit of the body that it reads, for the documentation. */
export function limited(maxBytes: number, handler: RequestHandler): BodyReader {
  return Object.assign(handler, { maxBytes })
}

/** Limit of the body that `handler` reads; undefined if it reads no body. */
export function maxBytesOf(handler: RequestHandler | BodyReader): number | undefined {
  return 'maxBytes' in handler ? handler.maxBytes : undefined
}

/** Like `jsonBody`, for a path with larger bodies. Each caller has its own share of slots. */
export function largeJsonBody(maxBytes: number, pace: BodyPace = PACE): BodyReader {
  const limit = Math.floor(LARGE_BYTES / maxBytes)
  const places = new FairSemaphore({ limit, perKey: Math.ceil(limit * CALLER_PART) })
  return limited(maxBytes, (request, response, next) => {
    const { kind, id } = callerOf(response).actor
    const key = `${kind} ${id} ${peerNetwork(request.socket.remoteAddress)}`
    const read = () =>
      places.run(key, () => readBody(request, maxBytes, pace, () => places.isShort))
    return takeBody(request, response, read, next)
  })
}

/**
 * Reads the fields of a form into `request.body`. Only for our own pages, behind `ownPagesOnly`: any web page can
 * send a form.
 */
export function formBody(maxBytes: number): RequestHandler {
  return async (request, _response, next) => {
    if (!FORM_TYPE.test(request.get('content-type') ?? '')) {
      throw new AppError('invalid-request', 'Send the fields of a form.')
    }
    const bytes = await readBody(request, maxBytes, PACE, () => false)
    request.body = Object.fromEntries(new URLSearchParams(bytes.toString()))
    next()
  }
}

async function takeBody(
  request: Request,
  response: Response,
  read: () => Promise<Buffer>,
  next: NextFunction,
): Promise<void> {
  refuseOtherTypes(request)
  const bytes = await read().catch((error: unknown) => {
    // The rest of the body is not read, so the connection cannot be reused.
    if (isTooSlow(error)) response.setHeader('connection', 'close')
    throw error
  })
  if (!isUtf8(bytes)) throw invalidJson('The body is not UTF-8.')
  request.body = parseJson(bytes.toString())
  next()
}

const isTooSlow = (error: unknown) => error instanceof AppError && error.code === 'request-timeout'

function refuseOtherTypes(request: Request): void {
  if (!JSON_TYPE.test(request.get('content-type') ?? '')) {
    throw new AppError('not-json', 'Send the body with content-type: application/json, in UTF-8.')
  }
  if (!/^(identity)?$/i.test(request.get('content-encoding') ?? '')) {
    throw new AppError('not-json', 'Send the body without a content-encoding.')
  }
}

/** Keeps the stream open after an error, because its connection still has to carry the answer. */
function readBody(
  request: Request,
  maxBytes: number,
  pace: BodyPace,
  isAwaited: () => boolean,
): Promise<Buffer> {
  if (Number(request.get('content-length') ?? 0) > maxBytes) {
    return Promise.reject(bodyTooLarge(request, maxBytes))
  }
  const startedAt = performance.now()
  const chunks: Buffer[] = []
  let sizeBytes = 0
  return new Promise((resolve, reject) => {
    const watch = setInterval(look, pace.graceMs / LOOKS)
    request.on('data', onData).on('end', onEnd).on('error', onError).on('close', onError)
    if (request.destroyed) onError()

    function onData(chunk: Buffer): void {
      sizeBytes += chunk.length
      chunks.push(chunk)
      if (sizeBytes > maxBytes) fail(bodyTooLarge(request, maxBytes))
    }
    function onEnd(): void {
      settle()
      resolve(Buffer.concat(chunks))
    }
    function onError(cause?: unknown): void {
      fail(new AppError('malformed-request', 'The body is incomplete.', { cause }))
    }
    function look(): void {
      const ms = performance.now() - startedAt
      const rate = isAwaited() ? pace.leastRateAwaited : pace.leastRate
      if (ms < pace.graceMs || sizeBytes >= (ms / 1_000) * rate) return
      const detail = 'The body arrives too slowly: send it faster, or in smaller parts.'
      fail(new AppError('request-timeout', detail))
    }
    function fail(error: AppError): void {
      settle()
      request.resume()
      reject(error)
    }
    function settle(): void {
      clearInterval(watch)
      request.off('data', onData).off('end', onEnd).off('error', onError).off('close', onError)
      // Ignores errors of the remaining body.
      request.on('error', () => {})
    }
  })
}

function parseJson(text: string): unknown {
  if (text.trim() === '') throw invalidJson('The body is empty.')
  const value = tryParse(text)
  if (isDeeper(value, MAX_DEPTH))
    throw invalidJson(`The body is nested more than ${MAX_DEPTH} levels deep.`)
  return value
}

function tryParse(text: string): unknown {
  try {
    return JSON.parse(text)
  } catch (error) {
    const { line, column } = jsonErrorPosition(text) ?? { line: 1, column: 1 }
    throw invalidJson(`The body is not valid JSON at line ${line}, column ${column}.`, error)
  }
}

/** Reads and discards the rest of the body, so that the connection survives and carries the answer. */
function bodyTooLarge(request: Request, maxBytes: number): AppError {
  request.resume()
  return new AppError('body-too-large', `The body exceeds ${maxBytes / 1024} KiB.`)
}

function invalidJson(detail: string, cause?: unknown): AppError {
  return new AppError('invalid-json', detail, { cause })
}

/** Ends each JSON answer with a newline, so that the prompt of a terminal is on its own line. */
export function endJsonWithNewline(app: Express): void {
  app.response.json = function json(this: Response, body: unknown) {
    if (this.get('content-type') === undefined) this.type('json')
    return this.send(`${JSON.stringify(body)}\n`)
  }
}
