import type { Clock } from './clock.ts'

/** Wakes one loop that waits for changes. A ring while nobody waits is kept for the next wait. */
export class Bell {
  #hasRung = false
  #wake: (() => void) | undefined

  ring(): void {
    this.#hasRung = true
    this.#wake?.()
  }

  /** Resolves at the next ring, or after `ms` when that is given. */
  async wait(clock?: Clock, ms?: number): Promise<void> {
    if (!this.#hasRung) {
      const woken = new AbortController()
      await new Promise<void>((resolve) => {
        this.#wake = resolve
        if (clock && ms !== undefined) clock.sleep(ms, woken.signal).then(resolve, () => {})
      })
      this.#wake = undefined
      woken.abort()
    }
    this.#hasRung = false
  }
}
