import { isUtf8 } from 'node:buffer'
import { Transform, type TransformCallback } from 'node:stream'
import { promisify } from 'node:util'
import { brotliDecompress, gunzip, inflate } from 'node:zlib'
import * as z from 'zod'
import { listOf } from '../../document/config-schema.ts'
import type { HeaderList } from '../../exchange/header-list.ts'
import type { BodyTransform, PolicyExchange } from '../../exchange/policy-exchange.ts'
import { Account } from '../../expression/cost/account.ts'
import { EvaluationError } from '../../expression/evaluation-error.ts'
import { PatternCache, PatternError } from '../../expression/pattern.ts'
import type { ActionContext } from '../action.ts'

/** Bytes of a body, plain, before and after. */
export const MAX_REPLACED_BODY = 1_048_576
/** For all replacements of a body: it is not of the request's own account, which is far too small. */
const MAX_STEPS = 1_048_576
const MAX_REPLACEMENTS = 10

const DECODERS: Readonly<Record<string, (body: Buffer) => Promise<Buffer>>> = {
  gzip: (body) => promisify(gunzip)(body, { maxOutputLength: MAX_REPLACED_BODY }),
  deflate: (body) => promisify(inflate)(body, { maxOutputLength: MAX_REPLACED_BODY }),
  br: (body) => promisify(brotliDecompress)(body, { maxOutputLength: MAX_REPLACED_BODY }),
}

export const replacementsConfig = z.strictObject({
  replacements: listOf(
    z.strictObject({ from: z.string().min(1).max(1_024), to: z.string().max(65_536).default('') }),
    MAX_REPLACEMENTS,
  ),
})

type Replacements = z.output<typeof replacementsConfig>['replacements']

/** What one replacement of the list did: its place in the list, and the first match. */
export type ReplacementResult = {
  readonly replacement_index: bigint
  readonly matched_content: string
}

export interface ReplacedBody {
  readonly body: Buffer
  readonly results: readonly ReplacementResult[]
}

/** Changes a body, when it is its turn; throws EvaluationError when it cannot be changed as a whole. */
export type ReplaceBody = (body: Buffer) => Promise<ReplacedBody>

/** Prepares the replacements of a configuration; their texts are computed for each exchange. */
export function compileReplacements(
  replacements: Replacements,
  context: ActionContext,
): (exchange: PolicyExchange) => ReplaceBody {
  const patterns = new PatternCache()
  const templates = replacements.map(({ from, to }, index) => {
    const pattern = context.template(from, ['replacements', index, 'from'])
    if (pattern.constant !== undefined) {
      try {
        patterns.get(pattern.constant, new Account())
      } catch (error) {
        if (!(error instanceof PatternError)) throw error
        const path = ['replacements', index, 'from']
        context.problem('badReplacePattern', path, `The pattern ${error.message}.`)
      }
    }
    return { pattern, to: context.template(to, ['replacements', index, 'to']) }
  })
  return (exchange) => {
    const steps = templates.map(({ pattern, to }) => ({
      source: pattern.render(exchange),
      to: to.render(exchange),
    }))
    return (body) => context.inTurn(() => replaceAll(body, steps, patterns))
  }
}

function replaceAll(
  body: Buffer,
  steps: readonly { readonly source: string; readonly to: string }[],
  patterns: PatternCache,
): ReplacedBody {
  // Nothing to look for in an image.
  if (!isUtf8(body)) return { body, results: [] }
  let text = body.toString()
  const account = new Account(MAX_STEPS, 'the body is too long for the pattern')
  const results: ReplacementResult[] = []
  for (const [index, { source, to }] of steps.entries()) {
    try {
      const pattern = patterns.get(source, account)
      if (!pattern.test(text, account)) continue
      account.spend(pattern.steps(text.length))
      const replaced = pattern.replaceAll(text, to, MAX_REPLACED_BODY, account)
      text = replaced.text
      const [first] = replaced.matches
      if (first !== undefined) {
        results.push({ replacement_index: BigInt(index), matched_content: first })
      }
    } catch (error) {
      if (!(error instanceof PatternError)) throw error
      throw new EvaluationError(`the pattern ${error.message}`)
    }
  }
  return { body: results.length === 0 ? body : Buffer.from(text), results }
}

/** True when bodies with these headers can be read as text. */
export function canDecode(headers: HeaderList): boolean {
  const encoding = encodingOf(headers)
  return encoding === '' || Object.hasOwn(DECODERS, encoding)
}

/** The plain body. Throws EvaluationError when it is damaged or too large. */
export async function decodeBody(body: Buffer, encoding: string): Promise<Buffer> {
  const decode = Object.hasOwn(DECODERS, encoding) ? DECODERS[encoding] : undefined
  if (!decode) return body
  try {
    return await decode(body)
  } catch {
    throw new EvaluationError(
      `the body is not ${encoding}, or larger than ${MAX_REPLACED_BODY} bytes`,
    )
  }
}

/** `gzip`, `deflate`, `br`; empty for plain bodies. */
export function encodingOf(headers: HeaderList): string {
  const encoding = headers.all('content-encoding').join(',').trim().toLowerCase()
  return encoding === 'identity' ? '' : encoding
}

/** Fields that describe the bytes of a body, and do not hold for other bytes. */
export function forgetBody(headers: HeaderList): void {
  for (const name of ['content-encoding', 'content-length', 'content-md5', 'digest', 'etag']) {
    headers.remove(name)
  }
}

/** Collects a body and sends on what `change` makes of it. */
export function wholeBody(change: (body: Buffer) => Promise<Buffer> | Buffer): BodyTransform {
  return { isWhole: true, create: () => new WholeBody(change) }
}

class WholeBody extends Transform {
  readonly #change: (body: Buffer) => Promise<Buffer> | Buffer
  readonly #chunks: Buffer[] = []
  #length = 0

  constructor(change: (body: Buffer) => Promise<Buffer> | Buffer) {
    super()
    this.#change = change
  }

  override _transform(chunk: Buffer, _encoding: BufferEncoding, done: TransformCallback): void {
    this.#length += chunk.length
    this.#chunks.push(chunk)
    done(
      this.#length > MAX_REPLACED_BODY
        ? new EvaluationError(`the body is larger than ${MAX_REPLACED_BODY} bytes`)
        : null,
    )
  }

  override _flush(done: TransformCallback): void {
    Promise.resolve(Buffer.concat(this.#chunks))
      .then(this.#change)
      .then(
        (body) => done(null, body),
        (error: Error) => done(error),
      )
  }
}
