import { Semaphore } from './semaphore.ts'

/** Runs work one at a time per key, in the order of arrival. */
export class KeyedLock {
  readonly #semaphores = new Map<string, Semaphore>()

  async run<T>(key: string, work: () => Promise<T>): Promise<T> {
    const semaphore = this.#semaphores.get(key) ?? new Semaphore(1)
    this.#semaphores.set(key, semaphore)
    try {
      return await semaphore.run(work)
    } finally {
      if (semaphore.pending === 0) this.#semaphores.delete(key)
    }
  }
}
