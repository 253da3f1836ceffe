import type { Clock } from '../../base/clock.ts'

/** What the wall clock is moved by at once is a jump; less is how time servers correct it. */
const JUMP_MS = 1_000

/**
 * A clock whose wall time does not jump when the device's clock is set. Instants that are taken from it
 * stay comparable; what people read is made when they read it, by `shown`.
 */
export class SteadyClock implements Clock {
  readonly #clock: Clock
  readonly #origin: number
  /** What the device's clock was moved by since; to the second, so that what is shown stands still. */
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

  /** An instant of this clock as the device's clock counts now. */
  shown(at: number): number {
    return at + this.#moved()
  }

  /** What the device's clock was moved by since the last look; 0 when it was not. */
  look(): number {
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

/** The fields of a status that hold instants. */
const INSTANTS: ReadonlySet<string> = new Set([
  'since',
  'nextRetryAt',
  'lastProbeAt',
  'loadedAt',
  'seenAt',
])

/** The same status, and what lies in it, with its instants as the device's clock counts now. */
export function withShownTimes<T extends object>(status: T, clock: SteadyClock): T {
  return withMovedTimes(status, clock.shown(0))
}

/** The same for what the device's clock was moved by. */
export function withMovedTimes<T extends object>(status: T, movedMs: number): T {
  // Nobody has set the clock: with a thousand tunnels the copies would be most of a status.
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
