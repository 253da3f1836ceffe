import { type ChildProcess, fork } from 'node:child_process'
import { once } from 'node:events'
import { join } from 'node:path'
import { AppError } from '../../base/app-error.ts'
import { abortable, withDeadline } from '../../base/deadline.ts'
import { packageRoot } from '../../base/file.ts'
import { Semaphore } from '../../base/semaphore.ts'
import type { PlacedProblem, PolicyCheckOptions } from '../../policy/check.ts'

const START_MS = 10_000
/** For each document. */
const ANSWER_MS = 10_000
/** Whoever changes one policy often changes the next one soon. */
const IDLE_MS = 10_000
const MAX_HEAP_MB = 64

export interface PolicyQuestion extends PolicyCheckOptions {
  readonly text: string
}

export interface PolicyProcessOptions {
  readonly program?: string
  readonly startMs?: number
  readonly answerMs?: number
  readonly idleMs?: number
}

/** The process had begun with a document and did not come to its end. */
export class UncheckableError extends Error {
  override readonly name = 'UncheckableError'
}

interface Worker {
  readonly child: ChildProcess
  /** Resolves when it takes documents. */
  readonly ready: Promise<unknown>
  /** Aborted when the process ended, or never came to be. */
  readonly gone: AbortSignal
}

/**
 * A child process that checks policies, started when there is one to check and ended when there was
 * none for a while. The engine is a seventh of the memory of an agent that needs it for moments, and
 * a document that is slow to check holds up nothing there.
 */
export class PolicyProcess {
  readonly #program: string
  readonly #startMs: number
  readonly #answerMs: number
  readonly #idleMs: number
  /** One document at a time, so that none pays for those before it. */
  readonly #lock = new Semaphore(1)
  #worker: Worker | undefined
  #idle: NodeJS.Timeout | undefined
  #isStopped = false

  constructor(options: PolicyProcessOptions = {}) {
    const { program = join(packageRoot(), 'dist/policy-process.js') } = options
    this.#program = program
    this.#startMs = options.startMs ?? START_MS
    this.#answerMs = options.answerMs ?? ANSWER_MS
    this.#idleMs = options.idleMs ?? IDLE_MS
  }

  get pid(): number | undefined {
    return this.#worker?.child.pid
  }

  /**
   * Throws an UncheckableError when the document takes too much time or memory, AppError
   * `shutting-down` after `stop()`, and another error when there is no process to be had.
   */
  check(text: string, { service }: PolicyCheckOptions): Promise<PlacedProblem[]> {
    return this.#lock.run(() => this.#check({ text, service }))
  }

  stop(): void {
    this.#isStopped = true
    this.#end()
  }

  async #check(question: PolicyQuestion): Promise<PlacedProblem[]> {
    clearTimeout(this.#idle)
    try {
      if (this.#isStopped) throw new Error('stopped')
      this.#worker ??= this.#start()
      return await this.#ask(this.#worker, question)
    } catch (error) {
      this.#end()
      throw this.#isStopped ? new AppError('shutting-down', 'The agent is stopping.') : error
    } finally {
      this.#idle = setTimeout(() => this.#end(), this.#idleMs).unref()
    }
  }

  async #ask({ child, ready, gone }: Worker, question: PolicyQuestion): Promise<PlacedProblem[]> {
    await withDeadline(abortable(ready, gone), this.#startMs, 'starting to check policies')
    const answer = messageFrom(child)
    await send(child, question)
    try {
      const answered = abortable(answer, gone)
      const [problems] = await withDeadline(answered, this.#answerMs, 'checking a policy')
      return problems as PlacedProblem[]
    } catch (error) {
      throw new UncheckableError('policy check not completed', { cause: error })
    }
  }

  #end(): void {
    clearTimeout(this.#idle)
    this.#worker?.child.kill()
    this.#worker = undefined
  }

  #start(): Worker {
    const child = fork(this.#program, {
      // It needs none of our settings, and must not learn our secrets.
      env: {},
      execArgv: [`--max-old-space-size=${MAX_HEAP_MB}`],
      stdio: ['ignore', 'ignore', 'ignore', 'ipc'],
    })
    const ended = new AbortController()
    const worker = { child, ready: messageFrom(child), gone: ended.signal }
    const onEnd = () => {
      ended.abort(new Error('the process that checks policies ended'))
      if (this.#worker === worker) this.#worker = undefined
    }
    child.on('exit', onEnd).on('error', onEnd)
    // It never keeps an agent alive that has ended.
    child.unref()
    child.channel?.unref()
    return worker
  }
}

/** The next message; it may be given up before anybody looks. */
function messageFrom(child: ChildProcess): Promise<unknown[]> {
  const message = once(child, 'message')
  message.catch(() => {})
  return message
}

function send(child: ChildProcess, question: PolicyQuestion): Promise<void> {
  return new Promise((resolve, reject) => {
    child.send(question, (error) => (error ? reject(error) : resolve()))
  })
}
