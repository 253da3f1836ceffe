import { isUtf8 } from 'node:buffer'
import { join } from 'node:path'
import { packageRoot } from '../../base/file.ts'
import { ThreadError, ThreadQueue } from '../../base/thread-queue.ts'
import { EvaluationError } from '../expression/expression-problem.ts'
import type { SchedulerMember } from '../limit/fair-scheduler.ts'
import { type Replacement, type ReplacementResult, TextRewriter } from './rewrite-text.ts'

/** Bytes of a body that is worth no thread. */
const SMALL_BODY = 4_096
/** Most steps of a small body before it moves to the thread: about 3 ms. */
const SMALL_STEPS = 49_152
/** Parts of a body that is too long for its patterns; each takes the thread 60 ms at most. */
const MAX_PARTS = 32
const LEAST_PART = 2_048
const NEWLINE = 0x0a
const TOO_MANY = 'too many bodies are waiting to be rewritten'
const NOT_CHANGED = 'the body could not be rewritten'

export interface RewriteQuestion {
  readonly body: Uint8Array
  readonly replacements: readonly Replacement[]
}

/** Without a body nothing was replaced; a problem says why it could not be. */
export type RewriteAnswer =
  | { readonly body: Uint8Array | undefined; readonly results: readonly ReplacementResult[] }
  | { readonly problem: string; readonly isOverspent: boolean }

export interface ReplacedBody {
  readonly body: Buffer
  readonly results: readonly ReplacementResult[]
}

export interface BodyRewriterOptions {
  readonly program?: string
  readonly idleMs?: number
  readonly answerMs?: number
}

/**
 * Replaces in whole bodies. Small bodies are processed here when it is their turn. Others go to a thread that
 * runs while needed: a search cannot be interrupted, and takes up to 60 ms for 1 MB.
 */
export class BodyRewriter {
  /** By owner, so that no owner displaces the patterns of others. */
  readonly #small = new WeakMap<SchedulerMember, TextRewriter>()
  readonly #thread: ThreadQueue<RewriteAnswer>

  constructor({ program, idleMs, answerMs }: BodyRewriterOptions = {}) {
    this.#thread = new ThreadQueue({
      program: program ?? join(packageRoot(), 'dist/rewrite-thread.js'),
      idleMs,
      answerMs,
    })
  }

  get isRunning(): boolean {
    return this.#thread.isRunning
  }

  /** Throws EvaluationError when the body cannot be changed as a whole. */
  async rewrite(
    owner: SchedulerMember,
    body: Buffer,
    replacements: readonly Replacement[],
  ): Promise<ReplacedBody> {
    // Nothing to look for in an image.
    if (!isUtf8(body)) return { body, results: [] }
    const isSmall = body.length <= SMALL_BODY
    const atOnce = () => this.#tryAtOnce(owner, body, replacements)
    const small = isSmall ? await owner.inTurn(atOnce) : undefined
    if (small) return small
    return this.#inParts(owner, body, replacements, { left: MAX_PARTS })
  }

  /** A body that is too long for its patterns is cut between lines, where a match seldom stands. */
  async #inParts(
    owner: SchedulerMember,
    body: Buffer,
    replacements: readonly Replacement[],
    parts: { left: number },
  ): Promise<ReplacedBody> {
    parts.left -= 1
    const answer = await this.#ask(owner, { body, replacements })
    if (!('problem' in answer)) {
      const { body: changed = body, results } = answer
      return { body: Buffer.from(changed.buffer, changed.byteOffset, changed.byteLength), results }
    }
    if (!answer.isOverspent || parts.left < 2 || body.length < 2 * LEAST_PART) {
      throw new EvaluationError(answer.problem, answer)
    }
    const middle = cutOf(body, body.length >> 1)
    const first = await this.#inParts(owner, body.subarray(0, middle), replacements, parts)
    const second = await this.#inParts(owner, body.subarray(middle), replacements, parts)
    const isKnown = new Set(first.results.map((result) => result.replacement_index))
    const more = second.results.filter((result) => !isKnown.has(result.replacement_index))
    return { body: Buffer.concat([first.body, second.body]), results: [...first.results, ...more] }
  }

  /** Undefined when it takes longer than others should wait for. */
  #tryAtOnce(
    owner: SchedulerMember,
    body: Buffer,
    replacements: readonly Replacement[],
  ): ReplacedBody | undefined {
    const rewriter = this.#small.get(owner) ?? new TextRewriter(SMALL_STEPS)
    this.#small.set(owner, rewriter)
    try {
      const { text, results } = rewriter.rewrite(body.toString(), replacements)
      return { body: results.length === 0 ? body : Buffer.from(text), results }
    } catch (error) {
      if (error instanceof EvaluationError && error.isOverspent) return undefined
      throw error
    }
  }

  async #ask(owner: SchedulerMember, { body, replacements }: RewriteQuestion) {
    try {
      return await this.#thread.ask(owner, (thread) => {
        // Without a copy, the whole memory block around the body would be sent.
        const copy = Uint8Array.from(body)
        const question: RewriteQuestion = { body: copy, replacements }
        thread.postMessage(question, [copy.buffer])
      })
    } catch (error) {
      if (!(error instanceof ThreadError)) throw error
      throw new EvaluationError(error.isFull ? TOO_MANY : NOT_CHANGED)
    }
  }
}

/** Position to cut a UTF-8 text at `at` or before: after a line, else after a character. */
export function cutOf(text: Buffer, at: number): number {
  const line = text.subarray(0, at).lastIndexOf(NEWLINE) + 1
  if (line > 0) return line
  let cut = at
  // Bytes of the form 10xxxxxx continue a character (RFC 3629 3).
  while (cut > at - 4 && cut > 0 && ((text[cut] ?? 0) & 0xc0) === 0x80) cut -= 1
  return cut > 0 ? cut : at
}
