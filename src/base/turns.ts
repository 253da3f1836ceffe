import { Limiter } from './limiter.ts'

/** Runs work one at a time per key, in the order of arrival. */
export class Turns {
  readonly #limiters = new Map<string, Limiter>()

  async run<T>(key: string, work: () => Promise<T>): Promise<T> {
    const limiter = this.#limiters.get(key) ?? new Limiter(1)
    this.#limiters.set(key, limiter)
    try {
      return await limiter.run(work)
    } finally {
      if (limiter.pending === 0) this.#limiters.delete(key)
    }
  }
}
