import { withDeadline } from './deadline.ts'
import type { Logger } from './logger.ts'

type Close = () => void | Promise<void>

/** A stack of what was opened. `close()` closes newest first and never throws. */
export class Closer {
  readonly #log: Logger
  readonly #stack: { name: string; close: Close }[] = []
  #closing: Promise<void> | undefined

  constructor(log: Logger) {
    this.#log = log
  }

  /** Remembers how `resource` is closed and hands it back. */
  own<T>(name: string, resource: T, close: (resource: T) => void | Promise<void>): T {
    this.#stack.push({ name, close: () => close(resource) })
    return resource
  }

  /** Closes everything, each with its own deadline; further calls wait for the first. */
  close(perItemMs = 5_000): Promise<void> {
    this.#closing ??= this.#closeAll(perItemMs)
    return this.#closing
  }

  async #closeAll(perItemMs: number): Promise<void> {
    for (let item = this.#stack.pop(); item; item = this.#stack.pop()) {
      const { name, close } = item
      try {
        await withDeadline(Promise.resolve(close()), perItemMs, `closing ${name}`)
      } catch (error) {
        this.#log.warn({ err: error, part: name }, 'did not close cleanly')
      }
    }
  }
}
