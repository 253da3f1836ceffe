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
