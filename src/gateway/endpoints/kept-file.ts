import { readFileSync } from 'node:fs'
import { open, rename } from 'node:fs/promises'
import type { Clock } from '../../base/clock.ts'
import type { Logger } from '../../base/logger.ts'

export interface KeptFileOptions {
  readonly path: string
  /** Content of the file, for log messages. */
  readonly what: string
  /** Interval for saving changes, in milliseconds. */
  readonly everyMs: number
  /** Changes whenever the content changes. */
  readonly revision: () => number | string
  readonly content: () => string
  readonly clock: Clock
  readonly log: Logger
}

/**
 * A private file with state for the next process. Changes are saved at an interval and at the end. A new file
 * replaces the old file as a whole. Only for state that may be lost if the process is killed, because no
 * caller waits for the write.
 */
export class KeptFile {
  readonly #options: KeptFileOptions
  readonly #stopping = new AbortController()
  /** Whether another process owns the file. */
  #isReleased = false
  #written: number | string | undefined
  #writing: Promise<void> = Promise.resolve()
  #looking: Promise<void> = Promise.resolve()

  constructor(options: KeptFileOptions) {
    this.#options = options
  }

  /**
   * Reads the state of the previous process with `parse`. Returns undefined if the file is missing or
   * damaged.
   */
  read<T>(parse: (text: string) => T): T | undefined {
    const { path, what, log } = this.#options
    try {
      return parse(readFileSync(path, 'utf8'))
    } catch (error) {
      const { code } = error as NodeJS.ErrnoException
      if (code !== 'ENOENT')
        log.warn(
          { path },
          `the file with ${what} is damaged or unreadable: starting without its data`,
        )
      return undefined
    }
  }

  /** Keeps the file up to date from now on. */
  start(): void {
    this.#looking = this.#writeForever()
  }

  /** Saves the latest state and leaves the file to another process. */
  async release(): Promise<void> {
    const written = this.#write()
    this.#isReleased = true
    try {
      await written
    } catch (error) {
      this.#isReleased = false
      throw error
    }
  }

  reclaim(): void {
    this.#isReleased = false
    this.#written = undefined
  }

  async stop(): Promise<void> {
    this.#stopping.abort()
    await this.#looking
    await this.#write()
  }

  async #writeForever(): Promise<void> {
    const { clock, everyMs, what, log } = this.#options
    const { signal } = this.#stopping
    while (!signal.aborted) {
      await this.#write().catch((err) =>
        log.warn({ err }, `${what} could not be saved, will retry`),
      )
      await clock.sleep(everyMs, signal).catch(() => {})
    }
  }

  /** Writes run one at a time, because they share a temporary file. */
  #write(): Promise<void> {
    if (this.#isReleased) return Promise.resolve()
    const written = this.#writing.then(() => this.#writeNow())
    this.#writing = written.catch(() => {})
    return written
  }

  async #writeNow(): Promise<void> {
    const { path, revision, content } = this.#options
    const now = revision()
    if (now === this.#written) return
    const temporary = `${path}.tmp`
    const file = await open(temporary, 'w', 0o600)
    try {
      await file.writeFile(content())
      // After a power failure there is the old file or the new file, never an empty file.
      await file.sync()
    } finally {
      await file.close()
    }
    await rename(temporary, path)
    this.#written = now
  }
}
