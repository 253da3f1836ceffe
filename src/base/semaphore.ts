import { createDeferred } from './deferred.ts'

/** Runs at most `limit` tasks at once. Others wait in order. */
export class Semaphore {
  readonly #limit: number
  readonly #line: (() => void)[] = []
  #running = 0

  constructor(limit: number) {
    this.#limit = limit
  }

  /** Number of running and waiting tasks. */
  get pending(): number {
    return this.#running + this.#line.length
  }

  /** Settles like `work`, which starts when a slot is free. */
  async run<T>(work: () => Promise<T>): Promise<T> {
    if (this.#running < this.#limit) this.#running += 1
    else await new Promise<void>((resolve) => this.#line.push(resolve))
    try {
      return await work()
    } finally {
      // The slot passes directly to the next in line, so that no new caller can take it.
      const next = this.#line.shift()
      if (next) next()
      else this.#running -= 1
    }
  }
}

/** Runs tasks one at a time per key, in order of arrival. Can also run a task alone. */
export class KeyedLock {
  readonly #semaphores = new Map<string, Semaphore>()
  readonly #running = new Set<Promise<unknown>>()
  /** Resolves when the task that runs or waits in `runAlone` has ended. */
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

  /** Runs `work` alone. It waits for all earlier tasks, and later tasks wait for it. */
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
