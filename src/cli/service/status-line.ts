import type { Clock } from '../../base/clock.ts'
import { AutoResetEvent } from '../../base/deferred.ts'

/** After a change: a thousand tunnels that open are one piece of news. */
const PAUSE_MS = 500
/** The sentence says how long something lasts, and some of what it tells nobody announces. */
const EVERY_MS = 10_000

export interface StatusLineOptions {
  /** The sentence as it is now. */
  readonly sentence: () => string
  /** Calls the listener when the sentence may be another; returns how to stop that. */
  readonly onChange: (listener: () => void) => () => void
  readonly tell: (sentence: string) => void
  readonly clock: Clock
}

/** Keeps the sentence that a service manager shows true. */
export class StatusLine {
  readonly #options: StatusLineOptions
  readonly #wakeUp = new AutoResetEvent()
  #isStopped = false
  #off: () => void = () => {}

  constructor(options: StatusLineOptions) {
    this.#options = options
  }

  start(): void {
    this.#off = this.#options.onChange(() => this.#wakeUp.set())
    void this.#run()
  }

  stop(): void {
    this.#isStopped = true
    this.#off()
    this.#wakeUp.set()
  }

  async #run(): Promise<void> {
    const { sentence, tell, clock } = this.#options
    while (!this.#isStopped) {
      await this.#wakeUp.wait(clock, EVERY_MS)
      if (!this.#isStopped) await clock.sleep(PAUSE_MS)
      if (!this.#isStopped) tell(sentence())
    }
  }
}
