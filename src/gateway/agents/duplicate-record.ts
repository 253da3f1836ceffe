import type { Clock } from '../../base/clock.ts'
import type { Duplicate } from '../endpoints/connected-agent.ts'

/** An agent hears of a duplicate no more often; the other one tries every few seconds. */
const NOTICE_STEP_MS = 600_000

/** The last that was seen of another process with the identity of a session's device. */
export class DuplicateRecord {
  readonly #clock: Clock
  #last: Duplicate | undefined
  /** Monotonic. */
  #toldAt = Number.NEGATIVE_INFINITY

  constructor(clock: Clock) {
    this.#clock = clock
  }

  get last(): Duplicate | undefined {
    return this.#last
  }

  /** Whether the agent and the log are to hear of it. */
  note(ip: string): boolean {
    const now = this.#clock.monotonic()
    const isNews = now - this.#toldAt >= NOTICE_STEP_MS || this.#last?.ip !== ip
    this.#last = { seenAt: this.#clock.now(), ip }
    if (isNews) this.#toldAt = now
    return isNews
  }
}
