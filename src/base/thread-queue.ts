import { Worker } from 'node:worker_threads'

/** Idle time until the thread ends: further questions often follow soon. */
const IDLE_MS = 10_000
/** With the start of the thread. No question takes a tenth of it, unless the machine has stopped. */
const ANSWER_MS = 20_000
const MAX_HEAP_MB = 64
/** Questions of one owner. */
const MAX_WAITING = 64

/** No answer: the owner has too many questions, or the thread did not start, ended or took too long. */
export class ThreadError extends Error {
  override readonly name = 'ThreadError'
  readonly isFull: boolean

  constructor(message: string, { isFull = false, cause }: ThreadErrorOptions = {}) {
    super(message, { cause })
    this.isFull = isFull
  }
}

interface ThreadErrorOptions extends ErrorOptions {
  readonly isFull?: boolean
}

export interface ThreadQueueOptions {
  /** File of the thread. It answers each message with one message. */
  readonly program: string
  readonly idleMs?: number | undefined
  readonly answerMs?: number | undefined
}

interface Waiting<Answer> {
  /** Posts the question. */
  readonly send: (thread: Worker) => void
  resolve(answer: Answer): void
  reject(error: Error): void
}

/**
 * Asks a thread that runs while needed, for work that cannot be interrupted.
 *
 * INVARIANTS
 * - The thread has one question at a time. Others wait in `#waiting`, in queues that are not empty.
 * - Owners take turns, so an owner with many questions waits longest.
 * - Each question gets one answer: from the thread, or a ThreadError.
 */
export class ThreadQueue<Answer> {
  readonly #waiting = new Map<unknown, Waiting<Answer>[]>()
  readonly #program: string
  readonly #idleMs: number
  readonly #answerMs: number
  #thread: Worker | undefined
  #current: Waiting<Answer> | undefined
  /** Ends a thread that has nothing to do, or takes too long. */
  #timer: NodeJS.Timeout | undefined

  constructor({ program, idleMs = IDLE_MS, answerMs = ANSWER_MS }: ThreadQueueOptions) {
    this.#program = program
    this.#idleMs = idleMs
    this.#answerMs = answerMs
  }

  get isRunning(): boolean {
    return this.#thread !== undefined
  }

  /** Throws ThreadError. `send` is called when it is the turn of the question. */
  ask(owner: unknown, send: (thread: Worker) => void): Promise<Answer> {
    return new Promise((resolve, reject) => {
      const own = this.#waiting.get(owner) ?? []
      if (own.length >= MAX_WAITING)
        throw new ThreadError('too many questions are waiting', { isFull: true })
      own.push({ send, resolve, reject })
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
    } catch (cause) {
      // The system has no more threads to give.
      current.reject(new ThreadError('the thread could not be started', { cause }))
      this.#next()
      return
    }
    this.#current = current
    current.send(this.#thread)
    this.#endAfter(this.#answerMs)
  }

  #answered(answer: Answer): void {
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
      // The thread takes a moment to end. Meanwhile, further questions get a new thread.
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
    // A thread that ended may have answered just before. Its question was answered with an error.
    thread.on('message', (answer: Answer) => {
      if (this.#thread === thread) this.#answered(answer)
    })
    // An exit follows.
    let cause: unknown
    thread.on('error', (error) => {
      cause = error
    })
    thread.on('exit', () => this.#ended(thread, cause))
    // It never keeps a process alive that has ended.
    thread.unref()
    return thread
  }

  #ended(thread: Worker, cause?: unknown): void {
    if (this.#thread !== thread) return
    this.#thread = undefined
    const current = this.#current
    this.#current = undefined
    current?.reject(new ThreadError('the thread ended before its answer', { cause }))
    this.#next()
  }
}
