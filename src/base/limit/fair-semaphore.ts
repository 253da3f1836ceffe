export interface FairSemaphoreOptions {
  /** Pieces of work at once. */
  readonly limit: number
  /** Of one key at once. */
  readonly perKey: number
}

interface Waiting {
  readonly key: string
  readonly begin: () => void
}

/** Runs a limited number of pieces of work at once, of each key fewer; the others wait in line. */
export class FairSemaphore {
  readonly #options: FairSemaphoreOptions
  readonly #line: Waiting[] = []
  readonly #running = new Map<string, number>()
  #total = 0

  constructor(options: FairSemaphoreOptions) {
    this.#options = options
  }

  /** True when work of some key waits only because all places are taken. */
  get isShort(): boolean {
    return this.#line.some(({ key }) => this.#hasShare(key))
  }

  /** Settles like `work`, which starts when it is its turn. */
  async run<T>(key: string, work: () => Promise<T>): Promise<T> {
    if (this.#total < this.#options.limit && this.#hasShare(key)) this.#take(key)
    else await new Promise<void>((begin) => this.#line.push({ key, begin }))
    try {
      return await work()
    } finally {
      this.#leave(key)
    }
  }

  /** The place goes to the key that has the fewest, and of these to the first in line. */
  #leave(key: string): void {
    this.#total -= 1
    const left = this.#heldBy(key) - 1
    if (left > 0) this.#running.set(key, left)
    else this.#running.delete(key)
    let next: Waiting | undefined
    for (const waiting of this.#line) {
      if (!this.#hasShare(waiting.key)) continue
      if (!next || this.#heldBy(waiting.key) < this.#heldBy(next.key)) next = waiting
    }
    if (!next) return
    this.#line.splice(this.#line.indexOf(next), 1)
    this.#take(next.key)
    next.begin()
  }

  #take(key: string): void {
    this.#total += 1
    this.#running.set(key, this.#heldBy(key) + 1)
  }

  #hasShare(key: string): boolean {
    return this.#heldBy(key) < this.#options.perKey
  }

  #heldBy(key: string): number {
    return this.#running.get(key) ?? 0
  }
}
