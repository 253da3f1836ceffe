/**
 * Who reads events. When all places are taken, a caller gets one of a caller that has more, so that
 * one token cannot keep all the others out.
 */
export class ReaderPlaces {
  readonly #limit: number
  /** Ends each reader, the oldest first, by caller. */
  readonly #readers = new Map<string, Set<() => void>>()

  constructor(limit: number) {
    this.#limit = limit
  }

  /** Makes room for one more reader of the caller; false: it has as many as anybody. */
  makeRoom(caller: string): boolean {
    const all = [...this.#readers.values()]
    if (all.reduce((sum, { size }) => sum + size, 0) < this.#limit) return true
    const most = all.reduce((one, other) => (other.size > one.size ? other : one))
    if (most.size <= this.#heldBy(caller) + 1) return false
    const [endOldest] = most
    endOldest?.()
    return true
  }

  /** Takes a place until the returned function is called, which `end` has to do. */
  take(caller: string, end: () => void): () => void {
    const readers = this.#readers.get(caller) ?? new Set()
    this.#readers.set(caller, readers.add(end))
    return () => {
      readers.delete(end)
      if (readers.size === 0 && this.#readers.get(caller) === readers) this.#readers.delete(caller)
    }
  }

  #heldBy(caller: string): number {
    return this.#readers.get(caller)?.size ?? 0
  }
}
