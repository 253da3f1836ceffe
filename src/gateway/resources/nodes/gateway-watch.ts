import type { Clock } from '../../../base/clock.ts'
import type { Logger } from '../../../base/logger.ts'
import type { Database } from '../../../store/database.ts'
import type { SecretSeal } from '../../access/secret-seal.ts'
import type { Membership } from '../../ports/membership.ts'
import type { OtherGateways, SeenGateway } from '../../ports/other-gateways.ts'
import type { EventStore, NewEvent } from '../../records/event-store.ts'

const POLL_MS = 15_000
/** A problem is reported after this time. Restarts and short outages are not. */
const LASTING_MS = 60_000
/** Maximum number of events that wait while the database cannot be written. */
const MAX_WAITING = 100

export interface GatewayWatchOptions {
  readonly database: Pick<Database, 'change'>
  readonly events: Pick<EventStore, 'append' | 'lastOfGateways'>
  readonly member: Pick<Membership, 'readiness'>
  readonly others: Pick<OtherGateways, 'all' | 'self'>
  readonly seal: Pick<SecretSeal, 'check' | 'problem'>
  readonly clock: Clock
  readonly log: Logger
}

interface Trouble {
  readonly since: number
  readonly text: string
  isTold: boolean
}

/**
 * Reports problems of gateways as events. Each gateway reports its own problems. The gateway on duty reports
 * gateways that are lost.
 */
export class GatewayWatch {
  readonly #options: GatewayWatchOptions
  readonly #stopping = new AbortController()
  /** Current problems, by gateway. */
  readonly #troubles = new Map<string, Trouble>()
  readonly #waiting: NewEvent[] = []
  #isOnDuty = false

  constructor(options: GatewayWatchOptions) {
    this.#options = options
  }

  reclaim(): void {
    this.#isOnDuty = true
    this.#recall()
  }

  release(): void {
    this.#isOnDuty = false
  }

  start(): void {
    this.#recall()
    void this.#run()
  }

  stop(): void {
    this.#stopping.abort()
  }

  async #run(): Promise<void> {
    const { clock, log } = this.#options
    const { signal } = this.#stopping
    this.#options.seal.check()
    for (;;) {
      await clock.sleep(POLL_MS, signal).catch(() => {})
      if (signal.aborted) return
      this.#poll()
      try {
        await this.#write()
      } catch (error) {
        log.debug({ err: error }, 'events of gateways not saved, will retry')
      }
    }
  }

  /** Continues with problems that were reported before a restart, or by another gateway. */
  #recall(): void {
    for (const { type, at, details } of this.#options.events.lastOfGateways()) {
      const id = nodeOf(details)
      if (type !== 'gateway.degraded' || id === undefined || this.#troubles.has(id)) continue
      const since = Date.parse(String(details.since))
      this.#troubles.set(id, { since: Number.isNaN(since) ? at : since, text: '', isTold: true })
    }
  }

  #poll(): void {
    const { others, seal } = this.#options
    seal.check()
    for (const gateway of others.all()) {
      if (gateway.isSelf) this.#follow(gateway, this.#ownProblem(gateway))
      else if (this.#isOnDuty) this.#follow(gateway, problemOf(gateway))
      // The gateway on duty reports the end of the problem.
      else this.#troubles.delete(gateway.id)
    }
  }

  #ownProblem({ standing }: SeenGateway): string | undefined {
    const { member, seal } = this.#options
    const { readiness } = member
    // A person drains a gateway.
    const isFine = readiness.state === 'ready' || standing === 'draining'
    const reasons = isFine ? [] : [...readiness.reasons]
    if (seal.problem !== undefined) reasons.push(seal.problem)
    return reasons.length === 0 ? undefined : reasons.join(' ')
  }

  #follow(gateway: SeenGateway, problem: string | undefined): void {
    const now = this.#options.clock.now()
    const trouble = this.#troubles.get(gateway.id)
    if (problem === undefined) {
      this.#troubles.delete(gateway.id)
      if (trouble?.isTold) this.#tell('gateway.recovered', gateway, { ...trouble, text: '' })
      return
    }
    const known = trouble ?? { since: now, text: problem, isTold: false }
    this.#troubles.set(gateway.id, known)
    if (known.isTold || now - known.since < LASTING_MS) return
    known.isTold = true
    this.#tell('gateway.degraded', gateway, known)
  }

  #tell(
    type: 'gateway.degraded' | 'gateway.recovered',
    { id, name }: SeenGateway,
    { since, text }: Trouble,
  ): void {
    const { clock } = this.#options
    const details = {
      node: { id, name },
      since: new Date(since).toISOString(),
      ...(text && { text }),
    }
    this.#waiting.push({ at: clock.now(), type, ownerId: null, details })
    this.#waiting.splice(0, this.#waiting.length - MAX_WAITING)
  }

  /** Two gateways may see the end of the same problem. */
  #isKnown({ type, details }: NewEvent): boolean {
    if (type !== 'gateway.recovered') return false
    const known = this.#options.events.lastOfGateways()
    return known.some((last) => last.type === type && nodeOf(last.details) === nodeOf(details))
  }

  async #write(): Promise<void> {
    const { database, events } = this.#options
    const news = [...this.#waiting]
    if (news.length === 0) return
    await database.change(() => {
      for (const event of news) if (!this.#isKnown(event)) events.append(event)
    })
    this.#waiting.splice(0, news.length)
  }
}

const nodeOf = (details: NewEvent['details']) => {
  const { id } = (details.node ?? {}) as { readonly id?: unknown }
  return typeof id === 'string' ? id : undefined
}

function problemOf({ standing, name }: SeenGateway): string | undefined {
  return standing === 'lost'
    ? `The gateway ${name} does not answer. Check its machine, its network and its log.`
    : undefined
}
