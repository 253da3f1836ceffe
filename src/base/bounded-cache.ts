/** Caches results by text. New entries replace the oldest ones. */
export class BoundedCache<T> {
  readonly #make: (text: string) => T
  readonly #maxEntries: number
  readonly #entries = new Map<string, T>()

  constructor(make: (text: string) => T, maxEntries = 256) {
    this.#make = make
    this.#maxEntries = maxEntries
  }

  /** Throws the errors of the `make` function. */
  get(text: string): T {
    const known = this.#entries.get(text)
    if (known !== undefined) return known
    const made = this.#make(text)
    if (this.#entries.size >= this.#maxEntries) {
      const [oldest] = this.#entries.keys()
      if (oldest !== undefined) this.#entries.delete(oldest)
    }
    this.#entries.set(text, made)
    return made
  }
}
