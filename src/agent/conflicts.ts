import type { Clock } from '../base/clock.ts'
import type { AutoResetEvent } from '../base/deferred.ts'
import type { TunnelTimings } from './timings.ts'

/** Minimum interval between two attempts of all tunnels together. */
const EACH_MS = 500

export interface ConflictsOptions {
  readonly timings: Pick<TunnelTimings, 'conflictRetryMs'>
  readonly random?: () => number
  readonly clock: Clock
}

/**
 * Tunnels whose names are online elsewhere. Usually one other device has all of them. So the tunnels try one
 * after the other, and the first one that gets its name wakes the others.
 */
export class Conflicts {
  readonly #options: ConflictsOptions
  readonly #waiting = new Set<AutoResetEvent>()
  #freedAt = Number.NEGATIVE_INFINITY

  constructor(options: ConflictsOptions) {
    this.#options = options
  }

  /** Returns the delay before the next attempt, with jitter of up to half of it. */
  pauseMs(): number {
    const { timings, random = Math.random } = this.#options
    const leastMs = Math.max(timings.conflictRetryMs, this.#waiting.size * EACH_MS)
    return leastMs * (1 + random() / 2)
  }

  /** Waits for `wakeUp` for at most `ms`. It is also set when another tunnel gets its name. */
  async wait(wakeUp: AutoResetEvent, ms: number): Promise<void> {
    this.#waiting.add(wakeUp)
    await wakeUp.wait(this.#options.clock, ms)
    this.#waiting.delete(wakeUp)
  }

  /**
   * Reports that a tunnel got its name. Wakes the others no more often than they try anyway, even if names
   * return one by one.
   */
  freed(): void {
    const { clock, timings } = this.#options
    if (clock.monotonic() - this.#freedAt < timings.conflictRetryMs) return
    this.#freedAt = clock.monotonic()
    for (const wakeUp of this.#waiting) wakeUp.set()
  }
}
