import type { Clock } from '../../base/clock.ts'
import type { Duplicate } from '../endpoints/connected-agent.ts'

/** An agent hears of a duplicate no more often. */
const NOTICE_STEP_MS = 60_000

/** The last that was seen of another process with the identity of a session's device. */
export class DuplicateRecord {
  readonly #clock: Clock
  #last: Duplicate | undefined

  constructor(clock: Clock) {
    this.#clock = clock
  }

  get last(): Duplicate | undefined {
    return this.#last
  }

  /** Whether the agent is to hear of it. */
  note(ip: string): boolean {
    const now = this.#clock.now()
    const { seenAt = 0 } = this.#last ?? {}
    this.#last = { seenAt: now, ip }
    return now < seenAt || now - seenAt >= NOTICE_STEP_MS
  }
}
