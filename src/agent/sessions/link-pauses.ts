import { Backoff, type BackoffOptions } from '../../base/backoff.ts'
import type { Clock } from '../../base/clock.ts'
import type { Problem } from '../problem.ts'
import type { LinkTimings, RefusalTimings } from '../timings.ts'

interface LinkPausesOptions {
  readonly timings: LinkTimings
  readonly random?: () => number
}

/** Delays between the link's attempts, in milliseconds. */
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

  /**
   * Returns the delay after losing a session that lasted `upMs`. It is short after a long session, because
   * the service may already be back.
   */
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

  /** Starts from the shortest delays again. */
  reset(): void {
    this.#failures.reset()
    this.#refusals.reset()
  }
}

/** Losses older than this do not count. */
export const LOSSES_MS = 600_000
/** More say no more. */
const MAX_LOSSES = 100

/** Recent losses of the link. */
export class LinkLosses {
  readonly #clock: Clock
  /** Monotonic times, oldest first. */
  #times: number[] = []

  constructor(clock: Clock) {
    this.#clock = clock
  }

  note(): void {
    this.#times = [...this.#recent().slice(1 - MAX_LOSSES), this.#clock.monotonic()]
  }

  get count(): number {
    return this.#recent().length
  }

  #recent(): number[] {
    const since = this.#clock.monotonic() - LOSSES_MS
    return this.#times.filter((time) => time > since)
  }
}

/**
 * With full jitter, several short delays could be followed by the longest one. With a quarter, a link that
 * was refused for 8 s is always tried again before 15 s have passed.
 */
const JITTER = 0.25

/** Delays after refusals: 2, 4, 8 … 60 s, reduced by a small jitter. */
export function refusalBackoff(
  timings: RefusalTimings,
  random: Pick<BackoffOptions, 'random'> | undefined,
): Backoff {
  return new Backoff({ ...timings, jitter: JITTER, ...random })
}
