import { join } from 'node:path'
import { AppError } from '../../base/app-error.ts'
import { packageRoot } from '../../base/file.ts'
import { ThreadError, ThreadQueue } from '../../base/thread-queue.ts'
import { type PolicyReading, quickReading } from './policy-text.ts'

const TOO_MANY =
  'Too many YAML policies of this account are waiting to be read. Try again in a moment, or send the policy as JSON.'
const NOT_READ =
  'The YAML policy could not be read, because its thread did not start or did not finish. Try again in a moment, or send the policy as JSON.'
const RETRY_S = 5

export interface YamlReaderOptions {
  readonly program?: string
  readonly idleMs?: number
  readonly answerMs?: number
}

/** Reads YAML in a thread, because a long text takes half a second. JSON is quick, and is read here. */
export class YamlReader {
  readonly #thread: ThreadQueue<PolicyReading>
  /** Texts under way. A device binds a thousand tunnels with one text. */
  readonly #current = new Map<string, Promise<PolicyReading>>()

  constructor({ program, idleMs, answerMs }: YamlReaderOptions = {}) {
    this.#thread = new ThreadQueue({
      program: program ?? join(packageRoot(), 'dist/yaml-thread.js'),
      idleMs,
      answerMs,
    })
  }

  get isRunning(): boolean {
    return this.#thread.isRunning
  }

  /** Owners take turns. Throws AppError `policy-not-checked` if the thread fails. */
  async read(text: string, ownerId: string | null): Promise<PolicyReading> {
    const quick = quickReading(text)
    if (quick) return quick
    const key = `${ownerId} ${text}`
    const reading = this.#current.get(key) ?? this.#ask(text, ownerId)
    this.#current.set(key, reading)
    try {
      return await reading
    } finally {
      this.#current.delete(key)
    }
  }

  async #ask(text: string, ownerId: string | null): Promise<PolicyReading> {
    try {
      return await this.#thread.ask(ownerId, (thread) => thread.postMessage(text))
    } catch (cause) {
      if (!(cause instanceof ThreadError)) throw cause
      const sentence = cause.isFull ? TOO_MANY : NOT_READ
      throw new AppError('policy-not-checked', sentence, { retryAfterS: RETRY_S, cause })
    }
  }
}
