/**
 * Lets long work go on in turns with everything else that the process does: each round of the event
 * loop has one turn, however many ask. Owners take turns, so whoever has much to do waits longest.
 */
export class Scheduler {
  /** Who waits, by owner, in the order of their turns; none of the queues is empty. */
  readonly #waiting = new Map<object, (() => void)[]>()
  #isTurning = false

  /** How many turns the owner waits for. */
  waiting(owner: object): number {
    return this.#waiting.get(owner)?.length ?? 0
  }

  /** Resolves when it is the caller's turn, which ends when the caller next waits. */
  yield(owner: object = this): Promise<void> {
    return new Promise((resolve) => {
      const own = this.#waiting.get(owner)
      if (own) own.push(resolve)
      else this.#waiting.set(owner, [resolve])
      this.#turnSoon()
    })
  }

  #turnSoon(): void {
    if (this.#isTurning) return
    this.#isTurning = true
    setImmediate(() => this.#turn())
  }

  #turn(): void {
    this.#isTurning = false
    const [next] = this.#waiting
    if (!next) return
    const [owner, callers] = next
    const resolve = callers.shift()
    this.#waiting.delete(owner)
    if (callers.length > 0) this.#waiting.set(owner, callers)
    if (this.#waiting.size > 0) this.#turnSoon()
    resolve?.()
  }
}
