import type { Clock } from '../../base/clock.ts'
import type { StreamSlots } from '../streams/stream-slots.ts'
import { untilIdle } from '../streams/until-idle.ts'

/** Since it was wanted: what is under way is not waited for any longer, whatever is asked for. */
const MAX_ALLOWED_MS = 60_000

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
  /** Until when it may be allowed more time, monotonic; undefined once it was. */
  #allowedUntil: number | undefined

  constructor(options: { readonly slots: StreamSlots; readonly clock: Clock }) {
    this.#slots = options.slots
    this.#clock = options.clock
  }

  /** In the place of what was wanted before. */
  begin(wanted: Wanted, withinMs: number): void {
    this.#allowedUntil = this.#clock.monotonic() + MAX_ALLOWED_MS
    this.#wait(wanted, withinMs)
  }

  /** What is under way gets another time from now on, once, where something is to be ended. */
  allow(withinMs: number): void {
    if (!this.#wanted || this.#allowedUntil === undefined) return
    const leftMs = Math.max(0, this.#allowedUntil - this.#clock.monotonic())
    this.#allowedUntil = undefined
    this.#wait(this.#wanted, Math.min(withinMs, leftMs))
  }

  #wait(wanted: Wanted, withinMs: number): void {
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

  stop(): void {
    this.#waiting.abort()
    this.#wanted = undefined
  }
}
