import { Backoff, type BackoffOptions } from '../../base/backoff.ts'
import type { Problem } from '../problem.ts'
import type { LinkTimings, RefusalTimings } from '../timings.ts'

interface LinkPausesOptions {
  readonly timings: LinkTimings
  readonly random?: () => number
}

/** How long the link waits before it tries again, in milliseconds. */
export class LinkPauses {
  readonly #timings: LinkTimings
  readonly #random: () => number
  readonly #failures: Backoff
  readonly #refusals: Backoff

  constructor({ timings, random = Math.random }: LinkPausesOptions) {
    this.#timings = timings
    this.#random = random
    const { backoffBaseMs: baseMs, backoffCapMs: capMs } = timings
    this.#failures = new Backoff({ baseMs, capMs, random })
    this.#refusals = refusalBackoff(timings.refusal, { random })
  }

  /** After a session that was up for `upMs`: who served it may be back already. */
  afterLoss(problem: Problem, upMs: number): number {
    if (upMs >= this.#timings.stableMs) this.reset()
    if (upMs < this.#timings.quickAfterMs) return this.after(problem)
    return Math.ceil(this.#timings.quickMs * (1 - this.#random()))
  }

  after(problem: Problem): number {
    if (problem.reason === 'duplicate') {
      return Math.ceil(this.#timings.duplicateRetryMs * (1 + this.#random() / 2))
    }
    return (problem.permanent ? this.#refusals : this.#failures).next()
  }

  /** From the shortest ones again. */
  reset(): void {
    this.#failures.reset()
    this.#refusals.reset()
  }
}

/**
 * With full jitter a row of short pauses could be followed by the longest one. With a quarter, what
 * was refused for 8 s is tried again before 15 s have passed, whatever chance says.
 */
const JITTER = 0.25

/** The pauses after refusals: 2, 4, 8 … 60 s, a little less by chance. */
export function refusalBackoff(
  timings: RefusalTimings,
  random: Pick<BackoffOptions, 'random'> | undefined,
): Backoff {
  return new Backoff({ ...timings, jitter: JITTER, ...random })
}
