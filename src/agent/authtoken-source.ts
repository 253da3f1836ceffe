import type { Clock } from '../base/clock.ts'
import type { Logger } from '../base/logger.ts'
import { Secret } from '../base/secret.ts'
import { type FileReading, WatchedFile } from './watched-file.ts'

const MAX_BYTES = 4_096
/** What can be an authtoken at all; anything else is a file that is still being written. */
const TOKEN = /^[\x21-\x7e]+$/

export interface AuthtokenSourceOptions {
  /** In order of precedence. */
  readonly files: readonly string[]
  /** From the environment; used when no file has a token. */
  readonly value: Secret | undefined
  readonly everyMs: number
  readonly clock: Clock
  readonly log: Logger
}

/** Where the agent's authtoken comes from; a token in a file is taken up when it changes. */
export class AuthtokenSource {
  readonly #options: AuthtokenSourceOptions
  readonly #file: WatchedFile
  #current: Secret | undefined

  constructor(options: AuthtokenSourceOptions) {
    const { files, everyMs, clock } = options
    this.#options = options
    this.#file = new WatchedFile({ paths: files, maxBytes: MAX_BYTES, everyMs, clock })
  }

  /** The same object until the token is another one. */
  get current(): Secret | undefined {
    return this.#current
  }

  start(onChange: () => void): void {
    this.#take(this.#file.read())
    this.#file.start((reading) => {
      if (this.#take(reading)) onChange()
    })
  }

  stop(): void {
    this.#file.stop()
  }

  /** Answers whether the token is another one now. */
  #take({ path, text, problem }: FileReading): boolean {
    const { log, value } = this.#options
    if (problem) log.warn({ path, problem }, 'authtoken file cannot be read')
    const found = text?.trim() ?? ''
    const token = TOKEN.test(found) ? new Secret(found) : value
    if (token?.reveal() === this.#current?.reveal()) return false
    this.#current = token
    log.info({ from: token && (token === value ? 'environment' : path) }, 'authtoken taken up')
    return true
  }
}
