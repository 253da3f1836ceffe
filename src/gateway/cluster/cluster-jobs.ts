import type { Clock } from '../../base/clock.ts'
import type { AuditTrail } from '../../store/audit-trail.ts'
import type { SingletonJob, SingletonJobs } from '../ports/singleton-jobs.ts'
import { homeFor, type NodeRow } from './nodes/node-facts.ts'

const POLL_MS = 30_000

/** Divides duties by name among the nodes that serve. */
export class ClusterJobs implements SingletonJobs {
  readonly #self: string
  readonly #duties = new Map<string, { readonly duty: SingletonJob; isOurs: boolean }>()

  constructor(self: string) {
    this.#self = self
  }

  share(name: string, duty: SingletonJob): void {
    this.#duties.set(name, { duty, isOurs: false })
  }

  isOurs(name: string): boolean {
    return this.#duties.get(name)?.isOurs ?? false
  }

  /** Divides the jobs again after a change of the nodes. Without its lease, this node runs no jobs. */
  divide(nodes: readonly NodeRow[], hasLease: boolean): void {
    for (const [name, shared] of this.#duties) {
      const isOurs = hasLease && homeFor(name, nodes) === this.#self
      if (isOurs === shared.isOurs) continue
      shared.isOurs = isOurs
      if (isOurs) shared.duty.reclaim()
      else void shared.duty.release()
    }
  }

  /** This node ends: no new jobs. */
  clear(): void {
    this.#duties.clear()
  }
}

export interface LeftChangesOptions {
  readonly trail: Pick<AuditTrail, 'takeOver'>
  readonly isThere: (nodeId: string) => boolean
  readonly clock: Clock
}

/** Concludes changes of a gateway that ended without recording their outcome. */
export class LeftChanges implements SingletonJob {
  readonly #options: LeftChangesOptions
  #looking: AbortController | undefined

  constructor(options: LeftChangesOptions) {
    this.#options = options
  }

  reclaim(): void {
    this.#looking ??= new AbortController()
    void this.#pollForever(this.#looking.signal)
  }

  release(): void {
    this.#looking?.abort('released')
    this.#looking = undefined
  }

  async #pollForever(signal: AbortSignal): Promise<void> {
    const { trail, isThere, clock } = this.#options
    while (!signal.aborted) {
      await trail.takeOver((node) => !isThere(node))
      await clock.sleep(POLL_MS, signal).catch(() => {})
    }
  }
}
