import { setImmediate } from 'node:timers/promises'

/**
 * Lets long work go on in turns with everything else that the process does. Whoever asks waits for
 * those who asked before, and each round of the event loop has one turn, however many ask.
 */
export class Scheduler {
  #last: Promise<void> = Promise.resolve()

  /** Resolves when it is the caller's turn, which ends when the caller next waits. */
  yield(): Promise<void> {
    this.#last = this.#last.then(() => setImmediate())
    return this.#last
  }
}
