import { withDeadline } from './deadline.ts'
import type { Logger } from './logger.ts'

type Close = () => void | Promise<void>

/** Default time limit per resource. */
const WITHIN_MS = 5_000

/** Closes resources, the newest first. `close()` never throws. */
export class Closer {
  readonly #log: Logger
  readonly #stack: { name: string; withinMs: number; close: Close }[] = []
  #closing: Promise<void> | undefined

  constructor(log: Logger) {
    this.#log = log
  }

  /** Registers how to close `resource` and the time limit for that. Returns the resource. */
  own<T>(
    name: string,
    resource: T,
    close: (resource: T) => void | Promise<void>,
    withinMs = WITHIN_MS,
  ): T {
    this.#stack.push({ name, withinMs, close: () => close(resource) })
    return resource
  }

  /** Closes all resources, each with its own time limit. Later calls wait for the first. */
  close(): Promise<void> {
    this.#closing ??= this.#closeAll()
    return this.#closing
  }

  async #closeAll(): Promise<void> {
    for (let item = this.#stack.pop(); item; item = this.#stack.pop()) {
      const { name, withinMs, close } = item
      try {
        await withDeadline(Promise.resolve(close()), withinMs, `closing ${name}`)
      } catch (error) {
        this.#log.warn({ err: error, part: name }, 'a part of the program did not close cleanly')
      }
    }
  }
}
