import { isUtf8 } from 'node:buffer'
import type { Express, NextFunction, Request, RequestHandler, Response } from 'express'
import { AppError } from '../base/app-error.ts'
import { isDeeper, jsonErrorPosition } from '../base/json.ts'
import { peerNetwork } from '../base/net/network.ts'
import { callerOf } from './caller.ts'

interface FairSemaphoreOptions {
  /** Pieces of work at once. */
  readonly limit: number
  /** Of one key at once. */
  readonly perKey: number
}

interface Waiting {
  readonly key: string
  readonly begin: () => void
}

/** Runs a limited number of pieces of work at once, of each key fewer; the others wait in line. */
export class FairSemaphore {
  readonly #options: FairSemaphoreOptions
  readonly #line: Waiting[] = []
  readonly #running = new Map<string, number>()
  #total = 0

  constructor(options: FairSemaphoreOptions) {
    this.#options = options
  }

  /** True when work of some key waits only because all places are taken. */
  get isShort(): boolean {
    return this.#line.some(({ key }) => this.#hasShare(key))
  }

  /** Settles like `work`, which starts when it is its turn. */
  async run<T>(key: string, work: () => Promise<T>): Promise<T> {
    if (this.#total < this.#options.limit && this.#hasShare(key)) this.#take(key)
    else await new Promise<void>((begin) => this.#line.push({ key, begin }))
    try {
      return await work()
    } finally {
      this.#leave(key)
    }
  }

  /** The place goes to the key that has the fewest, and of these to the first in line. */
  #leave(key: string): void {
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
    this.#take(next.key)
    next.begin()
  }

  #take(key: string): void {
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

/** The largest body that is read unless a path takes more, and the deepest nesting in it. */
const MAX_BYTES = 64 * 1024
const MAX_DEPTH = 32
/** How often the pace of a body is judged in its time of grace. */
const LOOKS = 5
/** Memory for larger ones that are read at the same time; the others wait in their sockets. */
const LARGE_BYTES = 16 * 1024 * 1024
/** The part of that for each caller. */
const CALLER_PART = 1 / 4
/** RFC 8259: JSON is UTF-8, and the charset parameter says nothing else. */
const JSON_TYPE = /^application\/json[ \t]*(;[ \t]*charset="?utf-8"?[ \t]*)?$/i

/** How slowly a body may arrive. */
export interface BodyPace {
  /** Not judged before. */
  readonly graceMs: number
  /** Bytes a second, on average. */
  readonly leastRate: number
  /** The same while other callers wait for the place. */
  readonly leastRateAwaited: number
}

const PACE: BodyPace = { graceMs: 5_000, leastRate: 1_024, leastRateAwaited: 16_384 }

/**
 * Puts the JSON of the body into `request.body`. Throws AppError `not-json`, `body-too-large`,
 * `request-timeout` or `invalid-json`. A form of another type would reach us from any web page without
 * a preflight.
 */
export const jsonBody: RequestHandler = (request, response, next) => {
  const read = () => readBody(request, MAX_BYTES, PACE, () => false)
  return takeBody(request, response, read, next)
}

/** The same for a path whose bodies may be larger. Each caller has its own share of places. */
export function largeJsonBody(maxBytes: number, pace: BodyPace = PACE): RequestHandler {
  const limit = Math.floor(LARGE_BYTES / maxBytes)
  const places = new FairSemaphore({ limit, perKey: Math.ceil(limit * CALLER_PART) })
  return (request, response, next) => {
    const { kind, id } = callerOf(response).actor
    const key = `${kind} ${id} ${peerNetwork(request.socket.remoteAddress)}`
    const read = () =>
      places.run(key, () => readBody(request, maxBytes, pace, () => places.isShort))
    return takeBody(request, response, read, next)
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
    // Nobody waits for the rest.
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

/** The stream outlives a refusal: its connection still has to carry the answer. */
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
      // What goes wrong with the rest concerns nobody.
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

/** What still comes is read and dropped, so that the answer is not lost with the connection. */
function bodyTooLarge(request: Request, maxBytes: number): AppError {
  request.resume()
  return new AppError('body-too-large', `The body exceeds ${maxBytes / 1024} KiB.`)
}

function invalidJson(detail: string, cause?: unknown): AppError {
  return new AppError('invalid-json', detail, { cause })
}

/** Ends each JSON answer of an app with a newline: on a terminal the prompt stands below it. */
export function endJsonWithNewline(app: Express): void {
  app.response.json = function json(this: Response, body: unknown) {
    if (this.get('content-type') === undefined) this.type('json')
    return this.send(`${JSON.stringify(body)}\n`)
  }
}
