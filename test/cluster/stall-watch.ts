import { performance } from 'node:perf_hooks'
import type { Interval } from './limit-watch.ts'

const POLL_MS = 250
/** More than a busy machine holds a timer up. */
const STALL_MS = 3_000

/** Times in which this process stood still: nobody looked then, and the machine may have slept. */
export class StallWatch {
  readonly #stalls: Interval[] = []
  #timer: NodeJS.Timeout | undefined
  #seen = performance.now()

  start(): void {
    this.#seen = performance.now()
    this.#timer = setInterval(() => this.#look(), POLL_MS)
  }

  stop(): void {
    clearInterval(this.#timer)
  }

  /** Ms that were lost in a time. */
  during(begin: number, end: number): number {
    this.#look()
    const within = this.#stalls.filter((it) => it.begin <= end && begin <= it.end)
    return within.reduce((sum, it) => sum + it.end - it.begin, 0)
  }

  #look(): void {
    const now = performance.now()
    if (now - this.#seen > STALL_MS) this.#stalls.push({ begin: this.#seen, end: now })
    this.#seen = now
  }
}
