import { type ChildProcess, fork } from 'node:child_process'
import { join } from 'node:path'
import { withDeadline } from '../base/deadline.ts'
import { createDeferred, type Deferred } from '../base/deferred.ts'
import { packageRoot } from '../base/package-root.ts'
import type { PlacedProblem, PolicyCheckOptions } from '../policy/check.ts'

const ANSWER_MS = 10_000
/** Whoever changes one policy often changes the next one soon. */
const IDLE_MS = 10_000
const MAX_HEAP_MB = 64

export interface PolicyQuestion extends PolicyCheckOptions {
  readonly id: number
  readonly text: string
}

export interface PolicyAnswer {
  readonly id: number
  readonly problems: PlacedProblem[]
}

export interface PolicyProcessOptions {
  readonly program?: string
  readonly answerMs?: number
  readonly idleMs?: number
}

/**
 * A child process that checks policies, started when there is one to check and ended when there was
 * none for a while. The engine is a seventh of the memory of an agent that needs it for moments, and
 * a document that is slow to check holds up nothing there.
 */
export class PolicyProcess {
  readonly #program: string
  readonly #answerMs: number
  readonly #idleMs: number
  readonly #waiting = new Map<number, Deferred<PlacedProblem[]>>()
  #child: ChildProcess | undefined
  #idle: NodeJS.Timeout | undefined
  #lastId = 0

  constructor(options: PolicyProcessOptions = {}) {
    const { program = join(packageRoot(), 'dist/policy-process.js') } = options
    this.#program = program
    this.#answerMs = options.answerMs ?? ANSWER_MS
    this.#idleMs = options.idleMs ?? IDLE_MS
  }

  get pid(): number | undefined {
    return this.#child?.pid
  }

  /** Rejects when the process cannot be had, ends, or takes too long: then nothing is known. */
  async check(text: string, { service }: PolicyCheckOptions): Promise<PlacedProblem[]> {
    clearTimeout(this.#idle)
    this.#lastId += 1
    const question: PolicyQuestion = { id: this.#lastId, text, service }
    const answer = createDeferred<PlacedProblem[]>()
    // It may be rejected before anybody looks.
    answer.promise.catch(() => {})
    this.#waiting.set(question.id, answer)
    try {
      this.#child ??= this.#start()
      this.#child.send(question, (error) => error && answer.reject(error))
      return await withDeadline(answer.promise, this.#answerMs, 'checking a policy')
    } catch (error) {
      this.stop()
      throw error
    } finally {
      this.#waiting.delete(question.id)
      if (this.#waiting.size === 0) this.#endWhenIdle()
    }
  }

  stop(): void {
    clearTimeout(this.#idle)
    this.#child?.kill()
    this.#child = undefined
    for (const answer of this.#waiting.values()) {
      answer.reject(new Error('the process that checks policies ended'))
    }
  }

  #start(): ChildProcess {
    const child = fork(this.#program, {
      // It needs none of our settings, and must not learn our secrets.
      env: {},
      execArgv: [`--max-old-space-size=${MAX_HEAP_MB}`],
      stdio: ['ignore', 'ignore', 'ignore', 'ipc'],
    })
    child.on('message', ({ id, problems }: PolicyAnswer) => {
      this.#waiting.get(id)?.resolve(problems)
    })
    const gone = () => {
      if (this.#child === child) this.stop()
    }
    child.on('error', gone).on('exit', gone)
    // It never keeps an agent alive that has ended.
    child.unref()
    child.channel?.unref()
    return child
  }

  #endWhenIdle(): void {
    this.#idle = setTimeout(() => this.stop(), this.#idleMs).unref()
  }
}
