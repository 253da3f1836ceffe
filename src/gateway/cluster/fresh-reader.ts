import type { Clock } from '../../base/clock.ts'

/** Between two reads. */
const PAUSE_MS = 20

/**
 * Reads for many at once: what somebody gets was read after they asked. However many ask, one read is
 * under way at a time, and one waits.
 */
export class FreshReader<T> {
  readonly #read: () => Promise<T>
  readonly #clock: Clock
  #running: Promise<unknown> = Promise.resolve()
  #next: Promise<T> | undefined

  constructor({ read, clock }: { read: () => Promise<T>; clock: Clock }) {
    this.#read = read
    this.#clock = clock
  }

  /** Rejects when the read does. */
  read(): Promise<T> {
    if (this.#next) return this.#next
    const next = this.#running.then(() => {
      this.#next = undefined
      return this.#read()
    })
    this.#next = next
    this.#running = next.catch(() => {}).then(() => this.#clock.sleep(PAUSE_MS))
    return next
  }
}
