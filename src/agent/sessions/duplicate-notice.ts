import type { Clock } from '../../base/clock.ts'

/** Where another process with this device's identity is. */
export interface SeenDuplicate {
  readonly ip: string
  /** Milliseconds since the epoch. */
  readonly seenAt: number
}

/** That somebody else has this device's identity, for as long as it is news. */
export class DuplicateNotice {
  readonly #shownMs: number
  readonly #clock: Clock
  #seen: (SeenDuplicate & { readonly at: number }) | undefined

  constructor({ shownMs, clock }: { shownMs: number; clock: Clock }) {
    this.#shownMs = shownMs
    this.#clock = clock
  }

  /** Our gateway tells of it every ten minutes: when it does not, the other one has gone. */
  get current(): SeenDuplicate | undefined {
    if (!this.#seen) return undefined
    const { ip, seenAt, at } = this.#seen
    return this.#clock.monotonic() - at < this.#shownMs ? { ip, seenAt } : undefined
  }

  /** Answers whether that is news. */
  note(ip: string): boolean {
    const isNews = this.current === undefined
    this.#seen = { ip, seenAt: this.#clock.now(), at: this.#clock.monotonic() }
    return isNews
  }
}
