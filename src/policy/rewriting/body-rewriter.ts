import { isUtf8 } from 'node:buffer'
import { join } from 'node:path'
import { Worker } from 'node:worker_threads'
import { packageRoot } from '../../base/file.ts'
import { EvaluationError } from '../expression/expression-problem.ts'
import type { SchedulerMember } from '../limit/fair-scheduler.ts'
import { type Replacement, type ReplacementResult, TextRewriter } from './rewrite-text.ts'

/** Bytes of a body that is worth no thread. */
const SMALL_BODY = 4_096
/** Most steps of a small body before it moves to the thread: about 3 ms. */
const SMALL_STEPS = 49_152
/** Idle time until the thread ends: further bodies often follow soon. */
const IDLE_MS = 10_000
/** No body takes a hundredth of it, unless the machine has stopped. */
const ANSWER_MS = 10_000
const MAX_HEAP_MB = 64
/** Bodies of one owner. */
const MAX_WAITING = 64
/** Parts of a body that is too long for its patterns; each takes the thread 60 ms at most. */
const MAX_PARTS = 32
const LEAST_PART = 2_048
const NEWLINE = 0x0a
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

interface Waiting {
  readonly question: RewriteQuestion
  resolve(answer: RewriteAnswer): void
  reject(error: Error): void
}

/**
 * Replaces in whole bodies. Small bodies are processed here when it is their turn. Others go to a thread that
 * runs while needed: a search cannot be interrupted, and takes up to 60 ms for 1 MB.
 *
 * INVARIANTS
 * - The thread has one body at a time. Others wait in `#waiting`, in queues that are not empty.
 * - Owners take turns, so an owner with many bodies waits longest.
 * - Each question gets one answer: from the thread, or an error when the thread ends.
 */
export class BodyRewriter {
  /** By owner, so that no owner displaces the patterns of others. */
  readonly #small = new WeakMap<SchedulerMember, TextRewriter>()
  readonly #waiting = new Map<SchedulerMember, Waiting[]>()
  readonly #program: string
  readonly #idleMs: number
  readonly #answerMs: number
  #thread: Worker | undefined
  #current: Waiting | undefined
  /** Ends a thread that has nothing to do, or takes too long. */
  #timer: NodeJS.Timeout | undefined

  constructor({ program, idleMs = IDLE_MS, answerMs = ANSWER_MS }: BodyRewriterOptions = {}) {
    this.#program = program ?? join(packageRoot(), 'dist/rewrite-thread.js')
    this.#idleMs = idleMs
    this.#answerMs = answerMs
  }

  get isRunning(): boolean {
    return this.#thread !== undefined
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

  #ask(owner: SchedulerMember, question: RewriteQuestion): Promise<RewriteAnswer> {
    return new Promise((resolve, reject) => {
      const own = this.#waiting.get(owner) ?? []
      if (own.length >= MAX_WAITING)
        throw new EvaluationError('too many bodies are waiting to be rewritten')
      own.push({ question, resolve, reject })
      this.#waiting.set(owner, own)
      this.#next()
    })
  }

  #next(): void {
    const [next] = this.#waiting
    if (this.#current || !next) return
    const [owner, own] = next
    this.#waiting.delete(owner)
    const current = own.shift()
    if (own.length > 0) this.#waiting.set(owner, own)
    if (!current) return
    try {
      this.#thread ??= this.#start()
    } catch {
      // The system has no more threads to give.
      current.reject(new EvaluationError(NOT_CHANGED))
      this.#next()
      return
    }
    this.#current = current
    // Without a copy, the whole memory block around the body would be sent.
    const { body, replacements } = current.question
    const copy = Uint8Array.from(body)
    const question: RewriteQuestion = { body: copy, replacements }
    this.#thread.postMessage(question, [copy.buffer])
    this.#endAfter(this.#answerMs)
  }

  #answered(answer: RewriteAnswer): void {
    const current = this.#current
    this.#current = undefined
    this.#endAfter(this.#idleMs)
    current?.resolve(answer)
    this.#next()
  }

  #endAfter(ms: number): void {
    clearTimeout(this.#timer)
    this.#timer = setTimeout(() => {
      const thread = this.#thread
      // The thread takes a moment to end. Meanwhile, further bodies get a new thread.
      if (thread) this.#ended(thread)
      void thread?.terminate()
    }, ms).unref()
  }

  #start(): Worker {
    const thread = new Worker(this.#program, {
      // The thread needs no settings, and must not see secrets.
      env: {},
      resourceLimits: { maxOldGenerationSizeMb: MAX_HEAP_MB },
    })
    // A thread that ended may have answered just before. Its body was answered with an error.
    thread.on('message', (answer: RewriteAnswer) => {
      if (this.#thread === thread) this.#answered(answer)
    })
    // An exit follows.
    thread.on('error', () => {})
    thread.on('exit', () => this.#ended(thread))
    // It never keeps a gateway alive that has ended.
    thread.unref()
    return thread
  }

  #ended(thread: Worker): void {
    if (this.#thread !== thread) return
    this.#thread = undefined
    const current = this.#current
    this.#current = undefined
    current?.reject(new EvaluationError(NOT_CHANGED))
    this.#next()
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
