/** Shorter rests than a timer can wait for come together first. */
const LEAST_REST_MS = 1

/**
 * Lets long work go on in turns with everything else that the process does: each round of the event
 * loop has one turn, however many ask. Owners take turns, so whoever has much to do waits longest.
 * No round has a turn while a rest is not over.
 */
export class Scheduler {
  /** Who waits, by owner, in the order of their turns; none of the queues is empty. */
  readonly #waiting = new Map<object, (() => void)[]>()
  #isTurning = false
  /** In ms. */
  #restsUntil = 0

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

  /** Leaves others as much time as a turn took that has ended just now, in ms. */
  restAfter(ms: number): void {
    const now = performance.now()
    const leftAtItsStart = Math.max(0, this.#restsUntil - (now - ms))
    this.#restsUntil = now + leftAtItsStart + ms
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
    const restMs = this.#restsUntil - performance.now()
    if (restMs >= LEAST_REST_MS) {
      this.#isTurning = true
      setTimeout(() => this.#turn(), restMs)
      return
    }
    const [owner, callers] = next
    const resolve = callers.shift()
    this.#waiting.delete(owner)
    if (callers.length > 0) this.#waiting.set(owner, callers)
    if (this.#waiting.size > 0) this.#turnSoon()
    resolve?.()
  }
}
