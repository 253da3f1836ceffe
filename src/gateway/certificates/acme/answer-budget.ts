import type { Clock } from '../../../base/clock.ts'

const WINDOW_MS = 1_000

export interface AnswerBudgetOptions {
  /** Answers to one address in a second. */
  readonly perAddress: number
  /** Addresses that are answered in a second; the memory is bounded by it. */
  readonly addresses: number
  readonly clock: Clock
}

/** How much may be sent to whom: the sender of a UDP packet is easily forged. */
export class AnswerBudget {
  readonly #options: AnswerBudgetOptions
  readonly #sent = new Map<string, number>()
  #since = Number.NEGATIVE_INFINITY

  constructor(options: AnswerBudgetOptions) {
    this.#options = options
  }

  /** Counts one answer; false when it must not be sent. */
  take(address: string): boolean {
    const { perAddress, addresses, clock } = this.#options
    const now = clock.monotonic()
    if (now - this.#since >= WINDOW_MS) {
      this.#since = now
      this.#sent.clear()
    }
    const sent = this.#sent.get(address) ?? 0
    if (sent >= perAddress || (sent === 0 && this.#sent.size >= addresses)) return false
    this.#sent.set(address, sent + 1)
    return true
  }
}
