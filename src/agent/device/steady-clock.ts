import type { Clock } from '../../base/clock.ts'

/** Larger changes of the wall clock are jumps. Time servers correct it in smaller steps. */
const JUMP_MS = 1_000

/**
 * A clock whose wall time does not jump when the device's clock is set. Its times stay comparable. `shown`
 * converts them for display.
 */
export class SteadyClock implements Clock {
  readonly #clock: Clock
  readonly #origin: number
  /**
   * Sum of the changes of the device's clock. Differences of up to a second are ignored, so that displayed times
   * stay stable.
   */
  #movedMs = 0
  #lookedMs = 0

  constructor(clock: Clock) {
    this.#clock = clock
    this.#origin = clock.now() - clock.monotonic()
  }

  now(): number {
    return Math.round(this.#origin + this.#clock.monotonic())
  }

  monotonic(): number {
    return this.#clock.monotonic()
  }

  sleep(ms: number, signal?: AbortSignal): Promise<void> {
    return this.#clock.sleep(ms, signal)
  }

  /** Converts a time of this clock to the device's current clock. */
  shown(at: number): number {
    return at + this.#moved()
  }

  /** Returns the change of the device's clock since the last call, 0 if it was not set. */
  readChange(): number {
    const before = this.#lookedMs
    this.#lookedMs = this.#moved()
    return this.#lookedMs - before
  }

  #moved(): number {
    const movedMs = this.#clock.now() - this.now()
    if (Math.abs(movedMs - this.#movedMs) > JUMP_MS) this.#movedMs = movedMs
    return this.#movedMs
  }
}

/** Names of status fields that contain times. */
const INSTANTS: ReadonlySet<string> = new Set([
  'since',
  'nextRetryAt',
  'lastProbeAt',
  'loadedAt',
  'seenAt',
])

/** Returns a copy of the status, including nested values, with times of the device's current clock. */
export function withShownTimes<T extends object>(status: T, clock: SteadyClock): T {
  return withMovedTimes(status, clock.shown(0))
}

/** Like `withShownTimes`, for a given change of the clock. */
export function withMovedTimes<T extends object>(status: T, movedMs: number): T {
  // The clock was not set. With a thousand tunnels, copying would be most of the work for a status.
  return movedMs === 0 ? status : moved(status, movedMs)
}

function moved<T extends object>(status: T, movedMs: number): T {
  const entries = Object.entries(status).map(([name, value]) => [
    name,
    movedValue(name, value, movedMs),
  ])
  return Object.fromEntries(entries)
}

function movedValue(name: string, value: unknown, movedMs: number): unknown {
  if (typeof value === 'number') return INSTANTS.has(name) ? value + movedMs : value
  return typeof value === 'object' && value !== null ? moved(value, movedMs) : value
}
