import { type Clock, systemClock } from '../../src/base/clock.ts'

/** The machine's clock for a process that can be stopped: time goes on, but nobody wakes up. */
export class PausableClock implements Clock {
  #resumed: Promise<void> | undefined
  #resume: () => void = () => {}
  #wallStepMs = 0

  get isPaused(): boolean {
    return this.#resumed !== undefined
  }

  now(): number {
    return systemClock.now() + this.#wallStepMs
  }

  monotonic(): number {
    return systemClock.monotonic()
  }

  async sleep(ms: number, signal?: AbortSignal): Promise<void> {
    await systemClock.sleep(ms, signal)
    while (this.#resumed) await this.#resumed
  }

  /** Moves the wall clock alone. */
  stepWall(ms: number): void {
    this.#wallStepMs += ms
  }

  pause(): void {
    this.#resumed ??= new Promise((resolve) => {
      this.#resume = resolve
    })
  }

  resume(): void {
    this.#resumed = undefined
    this.#resume()
  }
}
