import type { Clock } from '../../base/clock.ts'
import type { RefusedEndpoint } from '../endpoints/connected-agent.ts'

/** As many are remembered; the oldest goes first. */
const MOST = 100

/** Endpoints that an agent takes for online and that the gateway does not serve, with the reasons. */
export class RefusedEndpoints {
  readonly #clock: Clock
  readonly #byId = new Map<string, RefusedEndpoint>()

  constructor(clock: Clock) {
    this.#clock = clock
  }

  all(): readonly RefusedEndpoint[] {
    return [...this.#byId.values()]
  }

  note(refused: Omit<RefusedEndpoint, 'since'>): void {
    this.#byId.delete(refused.id)
    this.#byId.set(refused.id, { ...refused, since: this.#clock.now() })
    for (const id of this.#byId.keys()) {
      if (this.#byId.size <= MOST) break
      this.#byId.delete(id)
    }
  }

  /** False when it was not among them. */
  forget(id: string): boolean {
    return this.#byId.delete(id)
  }
}
