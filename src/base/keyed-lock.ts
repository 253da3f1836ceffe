import { createDeferred } from './deferred.ts'
import { Semaphore } from './limit/semaphore.ts'

/** Runs work one at a time per key, in the order of arrival; and some beside nothing else. */
export class KeyedLock {
  readonly #semaphores = new Map<string, Semaphore>()
  readonly #running = new Set<Promise<unknown>>()
  /** Resolves when what runs alone, or waits for its turn to, is over. */
  #alone: Promise<void> | undefined

  async run<T>(key: string, work: () => Promise<T>): Promise<T> {
    while (this.#alone) await this.#alone
    const running = this.#runKeyed(key, work)
    this.#running.add(running)
    try {
      return await running
    } finally {
      this.#running.delete(running)
    }
  }

  /** Waits for all that has come before; whatever comes later waits for it. */
  async runAlone<T>(work: () => Promise<T>): Promise<T> {
    while (this.#alone) await this.#alone
    const over = createDeferred()
    this.#alone = over.promise
    try {
      await Promise.allSettled(this.#running)
      return await work()
    } finally {
      this.#alone = undefined
      over.resolve()
    }
  }

  async #runKeyed<T>(key: string, work: () => Promise<T>): Promise<T> {
    const semaphore = this.#semaphores.get(key) ?? new Semaphore(1)
    this.#semaphores.set(key, semaphore)
    try {
      return await semaphore.run(work)
    } finally {
      if (semaphore.pending === 0) this.#semaphores.delete(key)
    }
  }
}
