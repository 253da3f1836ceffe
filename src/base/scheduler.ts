/** Minimum delay of a timer. Shorter rests add up first. */
const LEAST_REST_MS = 1

/**
 * Divides long work into turns, so that the rest of the process can continue. Each round of the event loop
 * runs one turn, however many wait. Owners take turns, so the owner with the most work waits longest. No turn
 * runs during a rest.
 */
export class Scheduler {
  /** Waiting callers by owner, in the order of their turns. No queue is empty. */
  readonly #waiting = new Map<object, (() => void)[]>()
  #isTurning = false
  /** End of the rest, in ms (`performance.now`). */
  #restsUntil = 0

  /** Number of turns that the owner waits for. */
  waiting(owner: object): number {
    return this.#waiting.get(owner)?.length ?? 0
  }

  /** Resolves when the caller's turn begins. The turn ends when the caller next awaits. */
  yield(owner: object = this): Promise<void> {
    return new Promise((resolve) => {
      const own = this.#waiting.get(owner)
      if (own) own.push(resolve)
      else this.#waiting.set(owner, [resolve])
      this.#turnSoon()
    })
  }

  /** Rests for as long as a turn took that has just ended, in ms. */
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
