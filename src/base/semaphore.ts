import { createDeferred } from './deferred.ts'

/** Runs at most `limit` pieces of work at once; the others wait in line. */
export class Semaphore {
  readonly #limit: number
  readonly #line: (() => void)[] = []
  #running = 0

  constructor(limit: number) {
    this.#limit = limit
  }

  /** Running and waiting. */
  get pending(): number {
    return this.#running + this.#line.length
  }

  /** Settles like `work`, which starts when it is its turn. */
  async run<T>(work: () => Promise<T>): Promise<T> {
    if (this.#running < this.#limit) this.#running += 1
    else await new Promise<void>((resolve) => this.#line.push(resolve))
    try {
      return await work()
    } finally {
      // The place goes straight to the next in line: nobody can slip in between.
      const next = this.#line.shift()
      if (next) next()
      else this.#running -= 1
    }
  }
}

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
