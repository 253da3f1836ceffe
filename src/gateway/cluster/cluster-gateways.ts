import type { OtherGateways, SeenGateway } from '../ports/other-gateways.ts'
import { ServiceError } from '../records/service-error.ts'
import type { Cluster } from './nodes/cluster.ts'
import { isThere, type NodeFacts, type NodeRow } from './nodes/node-facts.ts'
import type { PeerRpc } from './peer-rpc.ts'
import type { PeerLinks } from './peers/peer-links.ts'
import { DatabaseError } from './postgres/database-error.ts'

/** Heartbeats come every 3 s. After two missing heartbeats, a node is overdue. */
const OVERDUE_MS = 7_000

/** A node's own state is newer than its row in the database. */
const OWN_LEASE = {
  none: 'overdue',
  held: 'held',
  overdue: 'overdue',
  unsure: 'overdue',
  fenced: 'lost',
  unfit: 'lost',
  replaced: 'lost',
  forgotten: 'lost',
  left: 'left',
} as const

export interface ClusterGatewaysOptions {
  readonly self: string
  readonly facts: NodeFacts
  readonly cluster: Pick<Cluster, 'nodes' | 'lease' | 'forget'>
  readonly links: Pick<PeerLinks, 'find'>
  readonly questions: PeerRpc
}

/** The nodes of the site, as this node sees them. */
export class ClusterGateways implements OtherGateways {
  readonly #options: ClusterGatewaysOptions
  readonly self: string
  readonly isShared = true

  constructor(options: ClusterGatewaysOptions) {
    this.#options = options
    this.self = options.self
  }

  get count(): number {
    return Math.max(1, this.#options.cluster.nodes.all().filter(isThere).length)
  }

  /**
   * Whether a node serves. This includes a node that was given up but has a link: it has lost only
   * PostgreSQL.
   */
  serves(id: string): boolean {
    const { cluster, links } = this.#options
    const row = cluster.nodes.find(id)
    if (row?.standing === 'lost') return links.find(id)?.session !== undefined
    return row !== undefined && isThere(row)
  }

  find(id: string): SeenGateway | undefined {
    const row = this.#options.cluster.nodes.find(id)
    return row || id === this.self ? this.#view(id, row) : undefined
  }

  /** Includes this node, even before the first poll. */
  all(): readonly SeenGateway[] {
    const rows = new Map<string, NodeRow | undefined>([[this.self, undefined]])
    for (const row of this.#options.cluster.nodes.all()) rows.set(row.id, row)
    return Array.from(rows, ([id, row]) => this.#view(id, row))
  }

  on(kind: string, answer: (of: unknown) => unknown): void {
    this.#options.questions.on(kind, answer)
  }

  ask(id: string, kind: string, of: object = {}): Promise<unknown> {
    return this.#options.questions.ask(id, kind, of)
  }

  /** Throws ServiceError 843 while PostgreSQL is away. */
  async forget(id: string): Promise<boolean> {
    try {
      return (await this.#options.cluster.forget(id)) !== 'there'
    } catch (cause) {
      if (!(cause instanceof DatabaseError)) throw cause
      throw new ServiceError(843, 'PostgreSQL does not answer. Try again when it is back.', {
        cause,
      })
    }
  }

  #view(id: string, row: NodeRow | undefined): SeenGateway {
    const { facts, links } = this.#options
    const { name, version, startedAt, agentAddresses } = row?.facts ?? facts
    const link = links.find(id)
    return {
      id,
      name,
      version,
      startedAt,
      since: row?.since ?? startedAt,
      isSelf: id === this.self,
      standing: row?.standing ?? 'serving',
      serves: row === undefined || this.serves(id),
      address: row?.facts.peer,
      agentAddresses,
      isLinked: link?.session !== undefined,
      latencyMs: link?.latencyMs,
      lease: this.#leaseOf(id, row),
    }
  }

  #leaseOf(id: string, row: NodeRow | undefined): SeenGateway['lease'] {
    const { nodes, lease } = this.#options.cluster
    const { standing, epoch = 0 } = row ?? {}
    const silentMs = Math.round(nodes.silentMsOf(id) ?? 0)
    const isOver = standing === 'lost' || standing === 'left'
    const seen = isOver ? standing : silentMs >= OVERDUE_MS ? 'overdue' : 'held'
    return { state: id === this.self ? OWN_LEASE[lease.state] : seen, epoch, silentMs }
  }
}
