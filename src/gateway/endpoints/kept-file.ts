import { readFileSync } from 'node:fs'
import { open, rename } from 'node:fs/promises'
import type { Clock } from '../../base/clock.ts'
import type { Logger } from '../../base/logger.ts'

export interface KeptFileOptions {
  readonly path: string
  /** What it holds, for the log. */
  readonly what: string
  /** A change is in the file after this at the latest. */
  readonly everyMs: number
  /** Another value when something changed. */
  readonly revision: () => number | string
  readonly content: () => string
  readonly clock: Clock
  readonly log: Logger
}

/**
 * What a process leaves to the next one in a private file: written now and then when something
 * changed, and at the end; a new file takes the place of the old one whole. For what may be lost
 * with a process that is killed, since nobody waits for it.
 */
export class KeptFile {
  readonly #options: KeptFileOptions
  readonly #stopping = new AbortController()
  /** Another process has the file. */
  #isReleased = false
  #written: number | string | undefined
  #writing: Promise<void> = Promise.resolve()
  #looking: Promise<void> = Promise.resolve()

  constructor(options: KeptFileOptions) {
    this.#options = options
  }

  /** What the process before left, as `parse` reads it; undefined when that is nothing, or damaged. */
  read<T>(parse: (text: string) => T): T | undefined {
    const { path, what, log } = this.#options
    try {
      return parse(readFileSync(path, 'utf8'))
    } catch (error) {
      const { code } = error as NodeJS.ErrnoException
      if (code !== 'ENOENT')
        log.warn({ path }, `the file with ${what} is damaged: starting with an empty file`)
      return undefined
    }
  }

  /** Keeps the file true from now on. */
  start(): void {
    this.#looking = this.#look()
  }

  /** Leaves the file to another process, as true as it can be. */
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

  async #look(): Promise<void> {
    const { clock, everyMs, what, log } = this.#options
    const { signal } = this.#stopping
    while (!signal.aborted) {
      await this.#write().catch((err) => log.warn({ err }, `${what}: not saved`))
      await clock.sleep(everyMs, signal).catch(() => {})
    }
  }

  /** One after the other: they have a temporary file in common. */
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
      // A cut of the power may leave the old file or the new one, and no empty one.
      await file.sync()
    } finally {
      await file.close()
    }
    await rename(temporary, path)
    this.#written = now
  }
}
