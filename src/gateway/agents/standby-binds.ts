import type { Clock } from '../../base/clock.ts'
import { HeldByLegError } from '../access/name-claims.ts'
import { ServiceError } from '../records/service-error.ts'
import { isPassing } from './rebind.ts'

/** Interval for checking whether another connection of the same client still serves, at another gateway. */
const LEG_MS = 1_000

export interface StandbyBindsOptions {
  /** Binds for this connection, once the other one has ended. */
  readonly bind: (message: unknown) => Promise<object>
  /** Tries a bind. Throws HeldByLegError while another connection serves it, and ServiceError. */
  readonly probe: (message: unknown) => Promise<object>
  /** Closes an endpoint of this connection that the agent no longer wants. */
  readonly close: (id: string) => void
  /** Called if a bind is refused when this connection takes over. */
  readonly onRefused: (error: unknown) => void
  readonly clock: Clock
  /** Aborts with the session. */
  readonly signal: AbortSignal
}

/** Binds of endpoints that another connection of the client serves. They are done when that one ends. */
export class StandbyBinds {
  readonly #options: StandbyBindsOptions
  /** Messages by id of the endpoint. */
  readonly #messages = new Map<string, unknown>()
  /** Whether the watch runs: another gateway serves one of the endpoints. */
  #isWatching = false

  constructor(options: StandbyBindsOptions) {
    this.#options = options
  }

  get size(): number {
    return this.#messages.size
  }

  has(id: string): boolean {
    return this.#messages.has(id)
  }

  /** Keeps a bind. `isElsewhere`: another gateway serves the endpoint, and is probed periodically. */
  keep(id: string, message: unknown, isElsewhere = false): void {
    this.#messages.set(id, message)
    if (isElsewhere && !this.#isWatching) void this.#watch()
  }

  /** Forgets a bind. False if there is none. */
  forget(id: string): boolean {
    return this.#messages.delete(id)
  }

  /** Does all binds now: the other connection has ended. */
  takeOver(): void {
    const messages = [...this.#messages.values()]
    this.#messages.clear()
    for (const message of messages) this.#options.bind(message).catch(this.#options.onRefused)
  }

  /** Probes with one endpoint whether the other connection still serves. After that endpoint come the others. */
  async #watch(): Promise<void> {
    const { probe, close, clock, signal } = this.#options
    this.#isWatching = true
    for (;;) {
      await clock.sleep(LEG_MS, signal).catch(() => {})
      const [standby] = this.#messages
      if (!standby || signal.aborted) break
      const [id, message] = standby
      const error = await probe(message).then(
        () => undefined,
        (reason: unknown) => reason,
      )
      const isPassed = error instanceof ServiceError && isPassing(error)
      if (error instanceof HeldByLegError || isPassed) continue
      // The agent may have unbound it meanwhile.
      const isWanted = error !== undefined || this.#messages.delete(id)
      if (isWanted) this.takeOver()
      else close(id)
    }
    this.#isWatching = false
  }
}
