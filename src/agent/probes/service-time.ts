import type { Clock } from '../../base/clock.ts'

/** Clocks that agree this well are not to blame for a certificate. */
export const CLOCK_TOLERANCE_MS = 60_000

/** What time it is for the service, by its last answer and the clock that never jumps. */
export class ServiceTime {
  readonly #clock: Clock
  /** The service's date minus our monotonic clock. */
  #offsetMs: number | undefined

  constructor(clock: Clock) {
    this.#clock = clock
  }

  /** The `Date` of an answer that has just come, milliseconds since the epoch. */
  note(date: number): void {
    this.#offsetMs = date - this.#clock.monotonic()
  }

  get now(): number | undefined {
    return this.#offsetMs === undefined ? undefined : this.#offsetMs + this.#clock.monotonic()
  }

  /** Our wall clock minus the service's, to the second; right also just after ours was set. */
  get skewMs(): number | undefined {
    const { now } = this
    if (now === undefined) return undefined
    // A date has whole seconds: it was up to one more there.
    return Math.floor((this.#clock.now() - now) / 1_000) * 1_000
  }
}
