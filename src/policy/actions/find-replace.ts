import { Transform, type TransformCallback } from 'node:stream'
import { promisify } from 'node:util'
import {
  brotliDecompress,
  createBrotliDecompress,
  createGunzip,
  createInflate,
  gunzip,
  inflate,
} from 'node:zlib'
import * as z from 'zod'
import type { Clock } from '../../base/clock.ts'
import { listOf } from '../document/read-config.ts'
import type { HeaderList } from '../exchange/header-list.ts'
import { hasWholeBody, requestOf, responseOf } from '../exchange/message-head.ts'
import { CONTINUE, respond } from '../exchange/outcome.ts'
import type { BodyTransform, PolicyExchange } from '../exchange/policy-exchange.ts'
import { Account } from '../expression/account.ts'
import { EvaluationError } from '../expression/expression-problem.ts'
import { Pattern, PatternError } from '../expression/pattern.ts'
import { RESPONSE_PHASE } from '../phase.ts'
import { cutOf, type ReplacedBody } from '../rewriting/body-rewriter.ts'
import { MAX_REPLACED_BODY } from '../rewriting/rewrite-text.ts'
import { type ActionContext, defineAction } from './action.ts'

const MAX_REPLACEMENTS = 10
const NEWLINE = 0x0a

const DECODERS: Readonly<Record<string, (body: Buffer) => Promise<Buffer>>> = {
  gzip: (body) => promisify(gunzip)(body, { maxOutputLength: MAX_REPLACED_BODY }),
  deflate: (body) => promisify(inflate)(body, { maxOutputLength: MAX_REPLACED_BODY }),
  br: (body) => promisify(brotliDecompress)(body, { maxOutputLength: MAX_REPLACED_BODY }),
}

const replacementsConfig = z.strictObject({
  replacements: listOf(
    z.strictObject({ from: z.string().min(1).max(1_024), to: z.string().max(65_536).default('') }),
    MAX_REPLACEMENTS,
  ),
})

const REPLACEMENT_TEXTS = {
  replacements: 'Replacements, which run one after another.',
  'replacements.from': 'RE2 pattern, searched in the body. May contain expressions.',
  'replacements.to':
    'Text for each match; $1 is the first group. Empty: removes the match. May contain expressions.',
}

type Replacements = z.output<typeof replacementsConfig>['replacements']

/** Changes a body; throws EvaluationError when it cannot be changed as a whole. */
type ReplaceBody = (body: Buffer) => Promise<ReplacedBody>

/** Prepares the replacements of a configuration; their texts are computed for each exchange. */
function compileReplacements(
  replacements: Replacements,
  context: ActionContext,
): (exchange: PolicyExchange) => ReplaceBody {
  const templates = replacements.map(({ from, to }, index) => {
    const pattern = context.template(from, ['replacements', index, 'from'])
    if (pattern.constant !== undefined) {
      try {
        Pattern.compile(pattern.constant, new Account())
      } catch (error) {
        if (!(error instanceof PatternError)) throw error
        const path = ['replacements', index, 'from']
        context.problem('badReplacePattern', path, `The pattern ${error.message}.`)
      }
    }
    return { pattern, to: context.template(to, ['replacements', index, 'to']) }
  })
  return (exchange) => {
    const rendered = templates.map(({ pattern, to }) => ({
      from: pattern.render(exchange),
      to: to.render(exchange),
    }))
    return (body) => context.rewrite(body, rendered)
  }
}

/** Text types besides `text/*`, `+json` and `+xml`. */
const TEXT_TYPES: ReadonlySet<string> = new Set([
  'application/ecmascript',
  'application/graphql',
  'application/javascript',
  'application/json',
  'application/manifest+json',
  'application/sql',
  'application/toml',
  'application/vnd.apple.mpegurl',
  'application/x-javascript',
  'application/x-mpegurl',
  'application/x-ndjson',
  'application/x-www-form-urlencoded',
  'application/xml',
  'application/yaml',
])

/**
 * True when a body with these headers is text: nothing is looked for in images and downloads. A body
 * without a type counts as text. Events of `text/event-stream` are passed on as they come.
 */
function isText(headers: HeaderList): boolean {
  const encoding = encodingOf(headers)
  if (encoding !== '' && !Object.hasOwn(DECODERS, encoding)) return false
  const [type = ''] = (headers.get('content-type') ?? '').toLowerCase().split(';')
  const name = type.trim()
  if (name === '' || TEXT_TYPES.has(name) || /\+(?:json|xml)$/.test(name)) return true
  return name.startsWith('text/') && name !== 'text/event-stream'
}

/** The plain body. Throws EvaluationError when it is damaged or too large. */
async function decodeBody(body: Buffer, encoding: string): Promise<Buffer> {
  const decode = Object.hasOwn(DECODERS, encoding) ? DECODERS[encoding] : undefined
  if (!decode) return body
  try {
    return await decode(body)
  } catch {
    throw new EvaluationError(`the body is not ${encoding}, or exceeds ${MAX_REPLACED_BODY} bytes`)
  }
}

/** `gzip`, `deflate`, `br`; empty for plain bodies. */
function encodingOf(headers: HeaderList): string {
  const encoding = headers.all('content-encoding').join(',').trim().toLowerCase()
  return encoding === 'identity' ? '' : encoding
}

/** Fields that describe the bytes of a body, and do not hold for other bytes. */
function forgetBody(headers: HeaderList): void {
  for (const name of ['content-encoding', 'content-length', 'content-md5', 'digest', 'etag']) {
    headers.remove(name)
  }
}

/** Collects a body and sends the result of `change`. */
function wholeBody(change: (body: Buffer) => Promise<Buffer> | Buffer): BodyTransform {
  return { isWhole: true, create: () => new ChangedBody(change, undefined) }
}

/** Takes the encoding off, piece by piece. */
function decodedBody(encoding: string): BodyTransform | undefined {
  const create = Object.hasOwn(DECODING_STREAMS, encoding) ? DECODING_STREAMS[encoding] : undefined
  return create && { isWhole: true, create }
}

const DECODING_STREAMS: Readonly<Record<string, () => Transform>> = {
  gzip: createGunzip,
  deflate: createInflate,
  br: createBrotliDecompress,
}

/** How long a body is waited for before it goes on in parts. */
const WHOLE_MS = 1_000
/** A line of more bytes is changed in parts. */
const MAX_LINE = 65_536

/**
 * Changes a body as a whole when it comes within a second and has at most 1 MiB. A longer or slower
 * one is changed line by line as it comes: a stream that never ends is delivered, too.
 */
function changedBody(
  change: (body: Buffer) => Promise<Buffer> | Buffer,
  clock: Clock,
): BodyTransform {
  return { isWhole: true, create: () => new ChangedBody(change, clock) }
}

class ChangedBody extends Transform {
  readonly #change: (body: Buffer) => Promise<Buffer> | Buffer
  /** Absent where the body has to come as a whole. */
  readonly #clock: Clock | undefined
  readonly #over = new AbortController()
  #held: Buffer[] = []
  #heldBytes = 0
  #state: 'new' | 'collecting' | 'streaming' = 'new'
  /** The change in progress. The next part waits for it. */
  #work: Promise<void> = Promise.resolve()

  constructor(change: (body: Buffer) => Promise<Buffer> | Buffer, clock: Clock | undefined) {
    super()
    this.#change = change
    this.#clock = clock
  }

  override _transform(chunk: Buffer, _encoding: BufferEncoding, done: TransformCallback): void {
    this.#held.push(chunk)
    this.#heldBytes += chunk.length
    if (this.#state === 'new') this.#collect()
    if (this.#state === 'collecting' && this.#heldBytes > MAX_REPLACED_BODY) {
      if (!this.#clock) {
        done(new EvaluationError(`the body exceeds ${MAX_REPLACED_BODY} bytes`))
        return
      }
      this.#state = 'streaming'
    }
    if (this.#state === 'streaming') this.#sendLines().then(() => done(), done)
    else done()
  }

  override _flush(done: TransformCallback): void {
    this.#over.abort()
    this.#send(this.#heldBytes).then(() => done(), done)
  }

  override _destroy(error: Error | null, done: (error: Error | null) => void): void {
    this.#over.abort()
    done(error)
  }

  #collect(): void {
    this.#state = 'collecting'
    const onLong = () => {
      if (this.#state !== 'collecting' || this.#over.signal.aborted) return
      this.#state = 'streaming'
      this.#sendLines().catch((error: Error) => this.destroy(error))
    }
    // Rejects when the body is over before.
    this.#clock?.sleep(WHOLE_MS, this.#over.signal).then(onLong, () => {})
  }

  /** Sends the complete lines. The rest waits for more data. */
  #sendLines(): Promise<void> {
    const held = this.#joined()
    const line = held.lastIndexOf(NEWLINE) + 1
    // The last character may not be whole: it has 4 bytes at most.
    return this.#send(line > 0 || held.length < MAX_LINE ? line : cutOf(held, held.length - 3))
  }

  /** Changes the first bytes of the held data in order, and sends them. */
  #send(bytes: number): Promise<void> {
    if (bytes > 0) {
      const held = this.#joined()
      const part = held.subarray(0, bytes)
      this.#held = [held.subarray(bytes)]
      this.#heldBytes -= bytes
      this.#work = this.#work.then(async () => void this.push(await this.#change(part)))
    }
    return this.#work
  }

  #joined(): Buffer {
    if (this.#held.length !== 1) this.#held = [Buffer.concat(this.#held)]
    return this.#held[0] ?? Buffer.alloc(0)
  }
}

/** Replaces in the body of a request before it goes upstream. */
export const requestBodyFindReplace = defineAction({
  type: 'request-body-find-replace',
  phases: ['on_http_request'],
  config: replacementsConfig,
  fields: REPLACEMENT_TEXTS,
  example: { replacements: [{ from: 'secret-[0-9]+', to: '[hidden]' }] },
  results: { replacements: 'list(replacement)' },
  neverEnds: true,
  build({ replacements }, context) {
    const prepare = compileReplacements(replacements, context)
    return async (exchange) => {
      const request = requestOf(exchange)
      const { headers } = request
      const encoding = encodingOf(headers)
      exchange.results.set('request_body_find_replace', { replacements: [] })
      if (!isText(headers)) return CONTINUE
      const raw = await request.readBody(MAX_REPLACED_BODY)
      if (!raw) return respond({ status: 413, headers: [], body: '' })
      if (raw.length === 0) return CONTINUE
      const replace = prepare(exchange)
      const { body, results } = await replace(await decodeBody(raw, encoding))
      exchange.results.set('request_body_find_replace', { replacements: results })
      if (results.length > 0) {
        forgetBody(headers)
        exchange.transformRequest(wholeBody(() => body))
      }
      return CONTINUE
    }
  },
})

/** Replaces in the body of a response. It has no results: the body comes after all rules ran. */
export const responseBodyFindReplace = defineAction({
  type: 'response-body-find-replace',
  phases: RESPONSE_PHASE,
  config: replacementsConfig,
  fields: REPLACEMENT_TEXTS,
  example: { replacements: [{ from: 'http://', to: 'https://' }] },
  neverEnds: true,
  build({ replacements }, context) {
    const prepare = compileReplacements(replacements, context)
    return (exchange) => {
      const { headers } = responseOf(exchange)
      if (!hasWholeBody(exchange) || !isText(headers)) return CONTINUE
      const replace = prepare(exchange)
      const decoded = decodedBody(encodingOf(headers))
      forgetBody(headers)
      if (decoded) exchange.transformResponse(decoded)
      const change = async (body: Buffer) => {
        try {
          return (await replace(body)).body
        } catch (error) {
          // The transform reports it to the log.
          throw exchange.readSecrets.maskError(error)
        }
      }
      exchange.transformResponse(changedBody(change, context.clock))
      return CONTINUE
    }
  },
})
