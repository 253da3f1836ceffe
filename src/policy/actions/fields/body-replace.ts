import { Transform, type TransformCallback } from 'node:stream'
import { promisify } from 'node:util'
import { brotliDecompress, gunzip, inflate } from 'node:zlib'
import * as z from 'zod'
import { listOf } from '../../document/config-schema.ts'
import type { HeaderList } from '../../exchange/header-list.ts'
import type { BodyTransform, PolicyExchange } from '../../exchange/policy-exchange.ts'
import { Account } from '../../expression/cost/account.ts'
import { EvaluationError } from '../../expression/evaluation-error.ts'
import { Pattern, PatternError } from '../../expression/pattern.ts'
import type { ReplacedBody } from '../../rewriting/body-rewriter.ts'
import { MAX_REPLACED_BODY } from '../../rewriting/rewrite-text.ts'
import type { ActionContext } from '../action.ts'

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

/** Changes a body; throws EvaluationError when it cannot be changed as a whole. */
export type ReplaceBody = (body: Buffer) => Promise<ReplacedBody>

/** Prepares the replacements of a configuration; their texts are computed for each exchange. */
export function compileReplacements(
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
    throw new EvaluationError(`the body is not ${encoding}, or exceeds ${MAX_REPLACED_BODY} bytes`)
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
        ? new EvaluationError(`the body exceeds ${MAX_REPLACED_BODY} bytes`)
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
