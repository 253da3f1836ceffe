import type { Clock } from '../../../base/clock.ts'
import type { Logger } from '../../../base/logger.ts'
import { PostgresConnection } from '../postgres/postgres-connection.ts'
import { PostgresListener } from '../postgres/postgres-listener.ts'
import type { PostgresServer } from '../postgres/postgres-session.ts'
import { migrateSchema, type SchemaStep } from '../postgres/schema.ts'
import type { Claim, ClaimHolder, ClaimRow } from './claim.ts'
import { ClaimTable } from './claim-table.ts'
import { ClaimWriter } from './claim-writer.ts'
import { type ClaimAsker, Claims, type ClaimsOptions } from './claims.ts'
import { ClusterFeed } from './cluster-feed.ts'
import { CLAIMS_CHANNEL } from './cluster-schema.ts'
import { type Forgetting, forgetNode } from './forgotten-nodes.ts'
import type { NodeFacts, NodeRow } from './node-facts.ts'
import { LEASE_TIMINGS, type LeaseTimings, NodeLease } from './node-lease.ts'
import { NodeTable } from './node-table.ts'
import { ASKED_CHANNEL, NotifyAsker, readGiveRequest } from './notify-asker.ts'

/** How often names are claimed again that were not certain. */
const RECLAIM_MS = 500

export interface ClusterOptions {
  readonly server: PostgresServer
  /** Of all that this gateway keeps in PostgreSQL, `CLUSTER_STEPS` among them. */
  readonly steps: readonly SchemaStep[]
  readonly nodeId: string
  readonly facts: NodeFacts
  readonly timings?: Partial<LeaseTimings & { readonly lookMs: number }>
  /** How other nodes are asked for names; by way of the database unless given. */
  readonly asker?: ClaimAsker
  /** Asks another node on the link to it, where there is one. */
  readonly askPeer?: ClaimsOptions['askPeer']
  readonly give: ClaimsOptions['give']
  readonly onLost: (claim: Claim, holder: ClaimHolder) => void
  /** A newer process runs as this node: this one can only end. */
  readonly onReplaced: () => void
  /** Somebody has said that this node is gone for good: this process can only end. */
  readonly onForgotten: () => void
  /** Nodes have come, gone, or are seen otherwise than before. */
  readonly onNodes?: (nodes: readonly NodeRow[]) => void
  /** Names have another home, or none. */
  readonly onClaims?: (claims: readonly ClaimRow[]) => void
  /** What may be served here may be another. */
  readonly onSettled?: () => void
  readonly log: Logger
  readonly clock: Clock
}

/** One node among those that share a PostgreSQL: its lease, its names, and those of the others. */
export class Cluster {
  readonly #options: ClusterOptions
  readonly #connections: readonly PostgresConnection[]
  readonly #listener: PostgresListener
  readonly #writer: ClaimWriter
  readonly #feed: ClusterFeed
  readonly #fencing: PostgresConnection
  readonly #looks: PostgresConnection
  readonly #stopping = new AbortController()
  readonly nodes = new NodeTable()
  readonly table: ClaimTable
  readonly lease: NodeLease
  readonly claims: Claims

  constructor(options: ClusterOptions) {
    const { server, nodeId, facts, timings = {}, log, clock, give, onLost } = options
    this.#options = options
    const connect = (name: string) => new PostgresConnection({ server, name, log, clock })
    const [beats, changes, looks] = [connect('lease'), connect('claims'), connect('feed')] as const
    this.#connections = [beats, changes, looks]
    this.#fencing = beats
    this.#looks = looks
    this.table = new ClaimTable({
      ...{ nodeId, nodes: this.nodes },
      isHere: (key) => this.claims.heldBy(key) !== undefined,
    })
    this.lease = new NodeLease({
      ...{ nodeId, facts, timings, log, clock },
      connection: beats,
      onRejoined: () => void this.#reclaim(),
      onReplaced: options.onReplaced,
      onForgotten: options.onForgotten,
      onSettled: () => options.onSettled?.(),
    })
    this.#writer = new ClaimWriter({
      ...{ connection: changes, lease: this.lease, clock },
      onWritten: (mark) => this.#feed.expect(mark),
    })
    this.claims = new Claims({
      ...{ lease: this.lease, writer: this.#writer, give, onLost, clock },
      asker: options.asker ?? new NotifyAsker(changes),
      askPeer: options.askPeer ?? (async () => 'unknown'),
    })
    this.#feed = new ClusterFeed({
      ...{ connection: looks, log, clock },
      ...(timings.lookMs === undefined ? {} : { lookMs: timings.lookMs }),
      onNodes: (rows) => this.#onNodes(rows),
      onClaims: (rows, isAll) => {
        if (isAll) this.table.restart(rows, clock.monotonic())
        else this.table.apply(rows)
        this.claims.onChange()
        for (const row of rows) {
          const { node, epoch, facts: of } = row
          const isElsewhere = node !== null && node !== nodeId
          if (isElsewhere) this.claims.taken(row, { nodeId: node, epoch, facts: of })
        }
        options.onClaims?.(rows)
        if (!isAll) return
        // The database is an older copy, and may know nothing of names that this node has.
        this.claims.disown(rows)
        void this.#reclaim()
      },
    })
    this.#listener = new PostgresListener({
      ...{ server, log, clock, name: 'notices' },
      channels: [CLAIMS_CHANNEL, ASKED_CHANNEL],
      onNotice: (channel, payload) => this.#onNotice(channel, payload),
      onListening: () => this.#feed.ring(),
    })
  }

  /** Throws a StartError when this node does not fit, and a DatabaseError. */
  async start(): Promise<void> {
    const { server, steps } = this.#options
    await migrateSchema({ server, name: 'schema' }, steps)
    try {
      for (const connection of this.#connections) connection.start()
      this.#listener.start()
      await this.lease.start()
      await this.#feed.start()
    } catch (error) {
      await this.stop()
      throw error
    }
  }

  /** Looks for the nodes once more; resolves to false where that has failed. */
  look(): Promise<boolean> {
    return this.#feed.lookNow()
  }

  /** A node that is gone is none any more, and this one has seen it. Throws a DatabaseError. */
  async forget(nodeId: string): Promise<Forgetting> {
    const outcome = await forgetNode(this.#looks, nodeId)
    await this.look()
    return outcome
  }

  /** Lets go of all names; call it when nothing is served any more. */
  async stop(): Promise<void> {
    this.#stopping.abort('stopped')
    await this.#writer.stop()
    await this.#feed.stop()
    await this.lease.stop()
    await this.#listener.stop()
    await Promise.all(this.#connections.map((connection) => connection.stop()))
  }

  #onNotice(channel: string, payload: string): void {
    const { nodeId, log } = this.#options
    if (channel === CLAIMS_CHANNEL) this.#feed.ring()
    const request = channel === ASKED_CHANNEL ? readGiveRequest(payload, nodeId) : undefined
    if (!request) return
    this.claims.asked(request).catch((err: unknown) => {
      log.warn({ err, name: request.wanted.facts.url }, 'a name was not released')
    })
  }

  #onNodes(rows: readonly NodeRow[]): void {
    const { clock, nodeId, timings, onNodes } = this.#options
    this.nodes.observe(rows, clock.monotonic())
    this.table.expire(clock.monotonic())
    const { leaseMs } = { ...LEASE_TIMINGS, ...timings }
    for (const row of this.nodes.silent(leaseMs)) {
      if (row.id !== nodeId) void this.#fence(row)
    }
    onNodes?.(rows)
  }

  /** Gives a node up unless it has shown a beat meanwhile: its names can be taken then. */
  async #fence({ id, epoch, beat, facts: { name } }: NodeRow): Promise<void> {
    const { log } = this.#options
    const sql =
      "UPDATE nodes SET epoch = epoch + 1, standing = 'lost' " +
      'WHERE id = $1 AND epoch = $2 AND beat = $3 RETURNING epoch'
    const fenced = await this.#fencing.query(sql, [id, epoch, beat]).catch(() => [])
    if (fenced.length > 0) log.warn({ node: id, name }, 'a silent node was marked as lost')
    this.#feed.ring()
  }

  /** Claims all names again, until each is this node's, or somebody else's. */
  async #reclaim(): Promise<void> {
    const { clock, log } = this.#options
    this.claims.doubt()
    while (this.claims.doubted > 0 && !this.#stopping.signal.aborted) {
      await this.claims.reclaim().catch((err: unknown) => {
        log.debug({ err }, 'names were not claimed again')
      })
      this.#options.onSettled?.()
      if (this.claims.doubted > 0)
        await clock.sleep(RECLAIM_MS, this.#stopping.signal).catch(() => {})
    }
  }
}
