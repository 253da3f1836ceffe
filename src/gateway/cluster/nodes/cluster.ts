import type { Clock } from '../../../base/clock.ts'
import { AutoResetEvent } from '../../../base/deferred.ts'
import type { Logger } from '../../../base/logger.ts'
import type { DatabaseFollower } from '../postgres/database-follower.ts'
import { PostgresConnection } from '../postgres/postgres-connection.ts'
import type { PostgresServer } from '../postgres/postgres-session.ts'
import { migrateSchema, type SchemaStep } from '../postgres/schema.ts'
import type { Claim, ClaimHolder, ClaimRow } from './claim.ts'
import { ClaimTable } from './claim-table.ts'
import { ClaimWriter } from './claim-writer.ts'
import { Claims, type ClaimsOptions } from './claims.ts'
import { ClusterFeed } from './cluster-feed.ts'
import { CLAIMS_CHANNEL } from './cluster-schema.ts'
import { type Forgetting, forgetNode } from './forgotten-nodes.ts'
import type { NodeFacts, NodeRow } from './node-facts.ts'
import { LEASE_TIMINGS, type LeaseTimings, NodeLease } from './node-lease.ts'
import { NodeTable } from './node-table.ts'

/** How often names are claimed again that were not certain. */
const RECLAIM_MS = 500

export interface ClusterOptions {
  readonly server: PostgresServer
  /** For claims. */
  readonly connection: PostgresConnection
  readonly follower: DatabaseFollower
  /** Schema of everything in PostgreSQL, including `CLUSTER_STEPS`. */
  readonly steps: readonly SchemaStep[]
  readonly nodeId: string
  readonly facts: NodeFacts
  readonly timings?: Partial<LeaseTimings & { readonly lookMs: number }>
  readonly ask: ClaimsOptions['ask']
  readonly give: ClaimsOptions['give']
  readonly onLost: (claim: Claim, holder: ClaimHolder) => void
  /** A newer process runs as this node: this process has to end. */
  readonly onReplaced: () => void
  /** This node was removed from the cluster: this process has to end. */
  readonly onForgotten: () => void
  /** Nodes have come, gone, or are seen otherwise than before. */
  readonly onNodes?: (nodes: readonly NodeRow[]) => void
  /** Names moved to another node, or were released. */
  readonly onClaims?: (claims: readonly ClaimRow[]) => void
  /** The set of served names may have changed. */
  readonly onSettled?: () => void
  readonly log: Logger
  readonly clock: Clock
}

/** A node of a cluster: its lease, its own names, and the names of other nodes. */
export class Cluster {
  readonly #options: ClusterOptions
  readonly #beats: PostgresConnection
  readonly #writer: ClaimWriter
  readonly #feed: ClusterFeed
  readonly #stopping = new AbortController()
  readonly #hurry = new AutoResetEvent()
  #claiming: Promise<void> | undefined
  readonly nodes = new NodeTable()
  readonly table: ClaimTable
  readonly lease: NodeLease
  readonly claims: Claims

  constructor(options: ClusterOptions) {
    const { server, nodeId, facts, timings = {}, log, clock, ask, give, onLost } = options
    this.#options = options
    // Alone on its connection: nothing may delay a heartbeat.
    this.#beats = new PostgresConnection({ server, name: 'lease', log, clock })
    this.table = new ClaimTable({
      ...{ nodeId, nodes: this.nodes },
      isHere: (key) => this.claims.heldBy(key) !== undefined,
    })
    this.lease = new NodeLease({
      ...{ nodeId, facts, timings, log, clock },
      connection: this.#beats,
      onRejoined: () => void this.#reclaim(),
      onReplaced: options.onReplaced,
      onForgotten: options.onForgotten,
      onSettled: () => options.onSettled?.(),
    })
    this.#writer = new ClaimWriter({
      ...{ connection: options.connection, lease: this.lease, clock },
      onWritten: (mark) => this.#feed.expect(mark),
    })
    this.claims = new Claims({
      ...{ lease: this.lease, writer: this.#writer, ask, give, onLost, clock },
      onRenewed: () => void this.#claimDoubted(),
    })
    this.#feed = new ClusterFeed({
      ...{ connection: options.follower.connection, log, clock },
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
    const ring = () => this.#feed.ring()
    options.follower.listen(CLAIMS_CHANNEL, { onNotice: ring, onListening: ring })
  }

  /** Throws a StartError when this node does not fit, and a DatabaseError. */
  async start(): Promise<void> {
    const { server, steps } = this.#options
    await migrateSchema({ server, name: 'schema' }, steps)
    try {
      this.#beats.start()
      await this.lease.start()
      await this.#feed.start()
    } catch (error) {
      await this.stop()
      throw error
    }
  }

  /** Number of the last change that this node has read; undefined before its first poll. */
  get number(): number | undefined {
    return this.#feed.number
  }

  /** Uses what another node knows until this node reads it from PostgreSQL. */
  learn(nodes: readonly NodeRow[], claims: readonly ClaimRow[]): void {
    const { onNodes, onClaims } = this.#options
    if (this.number !== undefined) return
    this.nodes.learn(nodes)
    this.table.clear()
    this.table.apply(claims)
    onNodes?.(nodes)
    onClaims?.(claims)
  }

  /** Looks for the nodes once more; resolves to false where that has failed. */
  refreshNodes(): Promise<boolean> {
    return this.#feed.lookNow()
  }

  /** Removes a lost node, and waits until this node has seen it. Throws a DatabaseError. */
  async forget(nodeId: string): Promise<Forgetting> {
    const outcome = await forgetNode(this.#options.connection, nodeId)
    await this.refreshNodes()
    return outcome
  }

  /** Releases all names. Call it when nothing is served any longer. */
  async stop(): Promise<void> {
    this.#stopping.abort('stopped')
    this.#hurry.set()
    await this.#writer.stop()
    await this.#feed.stop()
    await this.lease.stop()
    await this.#beats.stop()
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
    const fenced = await this.#beats.query(sql, [id, epoch, beat]).catch(() => [])
    if (fenced.length > 0) log.warn({ node: id, name }, 'a silent node was marked as lost')
    this.#feed.ring()
  }

  /** Claims all names again, until each belongs to this node or another. */
  async #reclaim(): Promise<void> {
    this.claims.doubt()
    await this.#claimDoubted()
  }

  #claimDoubted(): Promise<void> {
    this.#hurry.set()
    this.#claiming ??= this.#claimUntilCertain()
    return this.#claiming
  }

  async #claimUntilCertain(): Promise<void> {
    const { clock, log } = this.#options
    // Names that are renewed in the same turn are written together.
    await Promise.resolve()
    while (this.claims.doubted > 0 && !this.#stopping.signal.aborted) {
      await this.claims.reclaim().catch((err: unknown) => {
        log.debug({ err }, 'names were not claimed again')
      })
      this.#options.onSettled?.()
      if (this.claims.doubted > 0) await this.#hurry.wait(clock, RECLAIM_MS)
    }
    // In the turn of the last check: a later renewal begins again.
    this.#claiming = undefined
  }
}
