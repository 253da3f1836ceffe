import type { Clock } from '../../base/clock.ts'
import type { StreamSlots } from '../streams/stream-slots.ts'
import { untilIdle } from '../streams/until-idle.ts'

/** What is to be ended, and when. */
interface Wanted {
  readonly isIdle: () => boolean
  readonly end: () => void
}

/** Ends something as soon as nothing is under way on a session, and after a time in any case. */
export class IdleEnd {
  readonly #slots: StreamSlots
  readonly #clock: Clock
  #waiting = new AbortController()
  #wanted: Wanted | undefined

  constructor(options: { readonly slots: StreamSlots; readonly clock: Clock }) {
    this.#slots = options.slots
    this.#clock = options.clock
  }

  /** In the place of what was wanted before. */
  begin(wanted: Wanted, withinMs: number): void {
    this.#waiting.abort()
    this.#waiting = new AbortController()
    this.#wanted = wanted
    const { signal } = this.#waiting
    const { isIdle, end } = wanted
    const waited = untilIdle({ slots: this.#slots, clock: this.#clock, isIdle, withinMs, signal })
    void waited.then(() => {
      if (!signal.aborted) end()
    })
  }

  /** What is under way gets another time from now on, where something is to be ended. */
  allow(withinMs: number): void {
    if (this.#wanted) this.begin(this.#wanted, withinMs)
  }

  stop(): void {
    this.#waiting.abort()
    this.#wanted = undefined
  }
}
