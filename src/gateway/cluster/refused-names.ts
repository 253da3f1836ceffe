import type { Clock } from '../../base/clock.ts'

/** Interval of checks whether names can be claimed again. */
const POLL_MS = 200

export interface RefusedNamesOptions {
  /** Whether a claim would reach PostgreSQL. */
  readonly canClaim: () => boolean
  /** Called when names can be claimed again after some were refused. */
  readonly onClaimable: () => void
  readonly clock: Clock
}

/**
 * Remembers that names were refused because PostgreSQL was away. Agents are told when it is back. Otherwise
 * they would wait for their next attempt, up to half a minute.
 */
export class RefusedNames {
  readonly #options: RefusedNamesOptions
  readonly #stopping = new AbortController()
  #waiting: Promise<void> | undefined

  constructor(options: RefusedNamesOptions) {
    this.#options = options
  }

  /** A name was refused. */
  note(): void {
    this.#waiting ??= this.#wait()
  }

  async stop(): Promise<void> {
    this.#stopping.abort('stopped')
    await this.#waiting
  }

  async #wait(): Promise<void> {
    const { canClaim, onClaimable, clock } = this.#options
    const { signal } = this.#stopping
    do await clock.sleep(POLL_MS, signal).catch(() => {})
    while (!signal.aborted && !canClaim())
    this.#waiting = undefined
    if (!signal.aborted) onClaimable()
  }
}
