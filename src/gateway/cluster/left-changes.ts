import type { Clock } from '../../base/clock.ts'
import type { AuditTrail } from '../../store/audit-trail.ts'
import type { Duty } from './cluster-node.ts'

const LOOK_MS = 30_000

export interface LeftChangesOptions {
  readonly trail: Pick<AuditTrail, 'takeOver'>
  readonly isThere: (nodeId: string) => boolean
  readonly clock: Clock
}

/** Changes whose gateway is gone, and has not noted what became of them. */
export class LeftChanges implements Duty {
  readonly #options: LeftChangesOptions
  #looking: AbortController | undefined

  constructor(options: LeftChangesOptions) {
    this.#options = options
  }

  reclaim(): void {
    this.#looking ??= new AbortController()
    void this.#look(this.#looking.signal)
  }

  release(): void {
    this.#looking?.abort('released')
    this.#looking = undefined
  }

  async #look(signal: AbortSignal): Promise<void> {
    const { trail, isThere, clock } = this.#options
    while (!signal.aborted) {
      await trail.takeOver((node) => !isThere(node))
      await clock.sleep(LOOK_MS, signal).catch(() => {})
    }
  }
}
