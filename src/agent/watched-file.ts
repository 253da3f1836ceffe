import { readFileSync, statSync } from 'node:fs'
import type { Clock } from '../base/clock.ts'
import { fileFlaw } from '../base/file.ts'

export interface WatchedFileOptions {
  /** The first existing file is used. */
  readonly paths: readonly string[]
  readonly maxBytes: number
  readonly everyMs: number
  readonly clock: Clock
}

/**
 * Content of the file. `text` is undefined if no file exists. `problem` is the reason why a file cannot be
 * read.
 */
export interface FileReading {
  readonly path: string | undefined
  readonly text: string | undefined
  readonly problem?: string
}

/**
 * A small file that may be replaced while the agent runs. It is polled, because file events do not follow
 * renames, links and mounts.
 */
export class WatchedFile {
  readonly #options: WatchedFileOptions
  readonly #stopping = new AbortController()
  #mark = ''

  constructor(options: WatchedFileOptions) {
    this.#options = options
  }

  read(): FileReading {
    this.#mark = this.#currentMarks()
    for (const path of this.#options.paths) {
      try {
        const bytes = readFileSync(path)
        if (bytes.length > this.#options.maxBytes) {
          const problem = `it is larger than ${this.#options.maxBytes} bytes`
          return { path, text: undefined, problem }
        }
        return { path, text: bytes.toString('utf8') }
      } catch (error) {
        if (!isMissing(error)) return { path, text: undefined, problem: fileFlaw(error) }
      }
    }
    return { path: undefined, text: undefined }
  }

  /** Calls `onReading` with the new content after each change, one call at a time, until `stop()`. */
  start(onReading: (reading: FileReading) => void | Promise<void>): void {
    void this.#watch(onReading)
  }

  stop(): void {
    this.#stopping.abort()
  }

  async #watch(onReading: (reading: FileReading) => void | Promise<void>): Promise<void> {
    const { clock, everyMs } = this.#options
    const { signal } = this.#stopping
    while (!signal.aborted) {
      await clock.sleep(everyMs, signal).catch(() => {})
      if (!signal.aborted && this.#currentMarks() !== this.#mark) await onReading(this.read())
    }
  }

  #currentMarks(): string {
    return this.#options.paths.map(markOf).join()
  }
}

/** Changes with the content, owner and mode of a file, and when it is replaced. */
function markOf(path: string): string {
  try {
    const { dev, ino, size, mtimeMs, ctimeMs } = statSync(path)
    return `${dev}:${ino}:${size}:${mtimeMs}:${ctimeMs}`
  } catch (error) {
    // The file is missing, or its folder is not readable for this user. Both may change.
    return codeOf(error)
  }
}

function isMissing(error: unknown): boolean {
  return ['ENOENT', 'ENOTDIR'].includes(codeOf(error))
}

function codeOf(error: unknown): string {
  return error instanceof Error && 'code' in error ? String(error.code) : String(error)
}
