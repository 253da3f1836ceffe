import type { Clock } from './clock.ts'

const WARN_EVERY_MS = 60_000

/** Limits warnings that visitors can cause as often as they like: one a minute, the others are `info`. */
export class WarningPace {
  readonly #clock: Clock
  /** Monotonic. */
  #warnAt = Number.NEGATIVE_INFINITY

  constructor(clock: Clock) {
    this.#clock = clock
  }

  /** Level of the next log line. */
  next(): 'warn' | 'info' {
    const now = this.#clock.monotonic()
    if (now < this.#warnAt) return 'info'
    this.#warnAt = now + WARN_EVERY_MS
    return 'warn'
  }
}
