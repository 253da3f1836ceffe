import { type ChildProcess, fork } from 'node:child_process'
import { once } from 'node:events'
import { join } from 'node:path'
import { AppError } from '../../base/app-error.ts'
import { abortable, withDeadline } from '../../base/deadline.ts'
import { packageRoot } from '../../base/file.ts'
import { Semaphore } from '../../base/semaphore.ts'
import type { PlacedProblem, PolicyCheckOptions } from '../../policy/check.ts'
import type { PolicyJson } from '../../policy/document/policy-text.ts'

/** Time limit for the start of the process. */
const START_MS = 10_000
/** Per document. */
const ANSWER_MS = 10_000
/** A change of a policy is often followed by another one. */
const IDLE_MS = 10_000
/** Heap limit of the process: a document that needs more is refused. */
const MAX_HEAP_MB = 64

/** Asks for the problems of a document, or for a text as JSON. */
export type PolicyQuestion =
  | ({ readonly text: string } & PolicyCheckOptions)
  | { readonly text: string; readonly isRead: true }

type PolicyAnswer = PlacedProblem[] | PolicyJson

export interface PolicyProcessOptions {
  readonly program?: string
  readonly startMs?: number
  readonly answerMs?: number
  readonly idleMs?: number
}

/** The check began but was not completed. */
export class UncheckableError extends Error {
  override readonly name = 'UncheckableError'
}

interface Worker {
  readonly child: ChildProcess
  /** Resolves when the process accepts documents. */
  readonly ready: Promise<unknown>
  /** Aborted when the process ended or could not be started. */
  readonly gone: AbortSignal
}

/**
 * Child process that reads and checks policies. It is started on demand and ended when idle. The policy engine needs a
 * seventh of the agent's memory, but only rarely. A document that is slow to check blocks only this process.
 */
export class PolicyProcess {
  readonly #program: string
  readonly #startMs: number
  readonly #answerMs: number
  readonly #idleMs: number
  /** One document at a time, so that earlier documents do not use up the time limit. */
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
   * Throws an UncheckableError if the document takes too much time or memory. Throws AppError `shutting-down`
   * after `stop()`, and another error if the process cannot be started.
   */
  check(text: string, { service }: PolicyCheckOptions): Promise<PlacedProblem[]> {
    return this.#lock.run(() => this.#answer({ text, service })) as Promise<PlacedProblem[]>
  }

  /** Reads a JSON or YAML text. Throws like `check`. */
  read(text: string): Promise<PolicyJson> {
    return this.#lock.run(() => this.#answer({ text, isRead: true })) as Promise<PolicyJson>
  }

  stop(): void {
    this.#isStopped = true
    this.#end()
  }

  async #answer(question: PolicyQuestion): Promise<PolicyAnswer> {
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

  async #ask({ child, ready, gone }: Worker, question: PolicyQuestion): Promise<PolicyAnswer> {
    await withDeadline(abortable(ready, gone), this.#startMs, 'starting to check policies')
    const answer = messageFrom(child)
    await send(child, question)
    try {
      const answered = abortable(answer, gone)
      const [found] = await withDeadline(answered, this.#answerMs, 'checking a policy')
      return found as PolicyAnswer
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
      // The process needs no settings and must not have access to secrets.
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
    // The child process must not keep the agent running.
    child.unref()
    child.channel?.unref()
    return worker
  }
}

/** Returns the next message. The rejection is handled, because the promise may be abandoned. */
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
