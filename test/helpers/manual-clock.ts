import type { Clock } from '../../src/base/clock.ts'

interface Sleeper {
  readonly at: number
  readonly wake: () => void
}

/** A clock that stands still until `advance()`; sleepers wake in the order of their times. */
export class ManualClock implements Clock {
  #monotonicMs: number
  #wallMs: number
  readonly #sleepers = new Set<Sleeper>()

  constructor(wallMs = Date.UTC(2030, 0, 1), monotonicMs = 1_000) {
    this.#wallMs = wallMs
    this.#monotonicMs = monotonicMs
  }

  get sleeping(): number {
    return this.#sleepers.size
  }

  now(): number {
    return this.#wallMs
  }

  monotonic(): number {
    return this.#monotonicMs
  }

  /** Moves the wall clock alone, as a time server does. */
  stepWall(ms: number): void {
    this.#wallMs += ms
  }

  sleep(ms: number, signal?: AbortSignal): Promise<void> {
    return new Promise((resolve, reject) => {
      if (signal?.aborted) return reject(signal.reason)
      const onAbort = () => {
        this.#sleepers.delete(sleeper)
        reject(signal?.reason)
      }
      const sleeper: Sleeper = {
        at: this.#monotonicMs + ms,
        wake: () => {
          signal?.removeEventListener('abort', onAbort)
          resolve()
        },
      }
      this.#sleepers.add(sleeper)
      signal?.addEventListener('abort', onAbort, { once: true })
    })
  }

  /** Moves both clocks forward, waking each sleeper at its time and letting its promises run. */
  async advance(ms: number): Promise<void> {
    const until = this.#monotonicMs + ms
    for (let next = this.#nextBefore(until); next; next = this.#nextBefore(until)) {
      this.#moveTo(next.at)
      this.#sleepers.delete(next)
      next.wake()
      await new Promise((resolve) => setImmediate(resolve))
    }
    this.#moveTo(until)
    await new Promise((resolve) => setImmediate(resolve))
  }

  #nextBefore(until: number): Sleeper | undefined {
    let next: Sleeper | undefined
    for (const sleeper of this.#sleepers) {
      if (sleeper.at <= until && (!next || sleeper.at < next.at)) next = sleeper
    }
    return next
  }

  #moveTo(monotonicMs: number): void {
    const step = Math.max(0, monotonicMs - this.#monotonicMs)
    this.#monotonicMs += step
    this.#wallMs += step
  }
}
