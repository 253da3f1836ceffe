import { RateLimiter, type RateLimiterOptions } from '../../src/policy/limit/rate-limiter.ts'
import { ManualClock } from './manual-clock.ts'

export const WINDOW_MS = 60_000

/** A limiter that is told the time with each call, which may go back as well. */
export class TimedLimiter extends RateLimiter {
  readonly #times: { now: number }

  constructor(options: Omit<RateLimiterOptions, 'clock'>) {
    const times = { now: 0 }
    super({ ...options, clock: Object.assign(new ManualClock(), { monotonic: () => times.now }) })
    this.#times = times
  }

  /** Sets the time alone. */
  setTime(time: number): void {
    this.#times.now = time
  }

  admit(key: string, time: number, address = '192.0.2.1'): number {
    this.#times.now = time
    return this.tryCount(key, address)
  }
}

/** Fails when more than `capacity` of the times lie in a window, wherever it starts. */
export function expectWithinCapacity(times: readonly number[], capacity: number): void {
  for (let index = capacity; index < times.length; index += 1) {
    const span = (times[index] ?? 0) - (times[index - capacity] ?? 0)
    if (span < WINDOW_MS) throw new Error(`${capacity + 1} admitted within ${span} ms`)
  }
}
