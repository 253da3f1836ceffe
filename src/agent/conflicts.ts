import type { Clock } from '../base/clock.ts'
import type { AutoResetEvent } from '../base/deferred.ts'
import type { TunnelTimings } from './timings.ts'

/** The tries of all tunnels together are this far apart. */
const EACH_MS = 500

export interface ConflictsOptions {
  readonly timings: Pick<TunnelTimings, 'conflictRetryMs'>
  readonly random?: () => number
  readonly clock: Clock
}

/**
 * Tunnels whose names are online elsewhere. Mostly one other device has all of them, so they take turns
 * to ask, and the first that gets its name wakes the others.
 */
export class Conflicts {
  readonly #options: ConflictsOptions
  readonly #waiting = new Set<AutoResetEvent>()
  #freedAt = Number.NEGATIVE_INFINITY

  constructor(options: ConflictsOptions) {
    this.#options = options
  }

  /** Up to half longer by chance. */
  pauseMs(): number {
    const { timings, random = Math.random } = this.#options
    const leastMs = Math.max(timings.conflictRetryMs, this.#waiting.size * EACH_MS)
    return leastMs * (1 + random() / 2)
  }

  /** Waits for `wakeUp` for so long; it rings when another tunnel got its name. */
  async wait(wakeUp: AutoResetEvent, ms: number): Promise<void> {
    this.#waiting.add(wakeUp)
    await wakeUp.wait(this.#options.clock, ms)
    this.#waiting.delete(wakeUp)
  }

  /** A tunnel got its name. Names that come back one by one wake the others no more often than they try. */
  freed(): void {
    const { clock, timings } = this.#options
    if (clock.monotonic() - this.#freedAt < timings.conflictRetryMs) return
    this.#freedAt = clock.monotonic()
    for (const wakeUp of this.#waiting) wakeUp.set()
  }
}
