import { StartError } from '../../../base/app-error.ts'
import type { Clock } from '../../../base/clock.ts'
import { AutoResetEvent } from '../../../base/deferred.ts'
import type { Logger } from '../../../base/logger.ts'
import type { PostgresConnection } from '../postgres/postgres-connection.ts'
import { JOIN_LOCK } from './cluster-schema.ts'
import { ForgottenError, forgottenAt } from './forgotten-nodes.ts'
import { type LeaseEvent, type LeaseState, nextLeaseState } from './lease-state.ts'
import { isThere, type NodeFacts, NodeRowSchema, type NodeState, requireFit } from './node-facts.ts'

export interface LeaseTimings {
  /** How often the lease is renewed. */
  readonly beatMs: number
  /** How often it is tried again when that failed. */
  readonly retryMs: number
  /** How long others wait for a beat before they give a node up. */
  readonly leaseMs: number
}

export const LEASE_TIMINGS: LeaseTimings = { beatMs: 3_000, retryMs: 500, leaseMs: 12_000 }

/** By how much the clocks of two machines may differ in speed. */
const MARGIN = 0.05
/** After a larger jump of the wall clock, the machine may have been asleep. */
const MAX_JUMP_MS = 1_000
/** A process that has not seen time go by for this part of a lease was stopped. */
const STALL = 1 / 12
/** A renewal older than this part of a lease was followed by a failed one. */
const FRESH = 0.5
/** How often it looks in that time. */
const LOOKS = 4

/** The difference between both clocks, of a statement that was sent at `$4`. */
const CLOCK_OFF = `jsonb_build_object(
  'clockOffMs', $4::bigint - (extract(epoch FROM clock_timestamp()) * 1000)::bigint)`

export interface NodeLeaseOptions {
  readonly nodeId: string
  readonly facts: NodeFacts
  /** For nothing else but to give nodes up: a renewal waits behind no work. */
  readonly connection: PostgresConnection
  readonly timings?: Partial<LeaseTimings>
  /** A new epoch has begun, after others gave the node up: nothing is claimed in it. */
  readonly onRejoined: () => void
  /** A newer process runs as this node and has its names: this process has to end. */
  readonly onReplaced: () => void
  /** This node was removed from the cluster: this process has to end. */
  readonly onForgotten: () => void
  /** Called in a separate turn when the set of served names may have changed. */
  readonly onSettled: () => void
  readonly log: Logger
  readonly clock: Clock
}

/**
 * The lease of a node. While it is held, no other node takes a name from this one.
 *
 * INVARIANTS
 * - Others give a node up only after its heartbeat was unchanged for `leaseMs` since they saw it. The node
 *   counts from its sending and stops 5 % earlier, so it has stopped before.
 * - Both count on their own monotonic clocks. If the wall clock jumps, the machine may have slept, and the
 *   lease counts as ended until it is renewed.
 * - Each process of a node has its own epoch.
 * - A process that was stopped for longer than its lease is `unsure` at the first check, until a renewal that
 *   began later has ended.
 */
export class NodeLease {
  readonly #options: NodeLeaseOptions
  readonly #timings: LeaseTimings
  readonly #stopping = new AbortController()
  readonly #hurry = new AutoResetEvent()
  #state: LeaseState = 'none'
  #standing: NodeState = 'serving'
  #epoch = 0
  /** When the last good renewal was sent, on both clocks. */
  #sent = { monotonic: Number.NEGATIVE_INFINITY, wall: 0 }
  /** When this process was last seen to run, on both clocks. */
  #awake: { readonly monotonic: number; readonly wall: number }
  #clockOffMs: number | undefined
  /** How often it was stopped. */
  #naps = 0
  #beating: Promise<unknown> | undefined
  /** Since when it has been in that state, monotonic. */
  #since = 0
  /** Why the others do not take it back, as the log has it. */
  #unfit: string | undefined

  constructor(options: NodeLeaseOptions) {
    this.#options = options
    this.#timings = { ...LEASE_TIMINGS, ...options.timings }
    this.#awake = this.#now()
  }

  get nodeId(): string {
    return this.#options.nodeId
  }

  /** The current state: a lease ends without an event. */
  get state(): LeaseState {
    const hasSlept = this.#hasSlept()
    if (hasSlept) this.#naps += 1
    if (this.#isInTime()) return this.#state
    const before = this.#state
    this.#enter(hasSlept ? 'woke' : 'expired')
    if (this.#state !== before) this.#hurry.set()
    return this.#state
  }

  /**
   * Whether PostgreSQL answers this node: its lease was renewed a moment ago, and was held for a whole lease
   * time. Other nodes ask for it, because no event reports the end or return of PostgreSQL for all.
   */
  get isFirm(): boolean {
    const { leaseMs } = this.#timings
    if (this.state !== 'held') return false
    const now = this.#options.clock.monotonic()
    const isFresh = now - this.#sent.monotonic < leaseMs * FRESH
    return isFresh && now - this.#since >= leaseMs
  }

  /** Rises with each start, and each time the node was given up; 0 before the first. */
  get epoch(): number {
    return this.#epoch
  }

  /** By how much the clock was ahead of PostgreSQL's at the last renewal; undefined before the first. */
  get clockOffMs(): number | undefined {
    return this.#clockOffMs
  }

  get standing(): NodeState {
    return this.#standing
  }

  /** Joins. Throws a StartError when this node does not fit, and a DatabaseError. */
  async start(): Promise<void> {
    await this.#join()
    this.#beating ??= Promise.all([this.#beat(), this.#stayAwake()])
  }

  /**
   * `draining`: new names go elsewhere from now on. Others hear of it with the next beat at the latest;
   * when this rejects, then.
   */
  async stand(standing: 'serving' | 'draining'): Promise<void> {
    this.#standing = standing
    await this.#renew()
  }

  /** Gives up the lease and all names at once. Call it when this node serves nothing. */
  async stop(): Promise<void> {
    this.#stopping.abort('stopped')
    this.#hurry.set()
    await this.#beating
    await this.#deregister()
    this.#enter('leave')
  }

  #isInTime(): boolean {
    const { clock } = this.#options
    const passed = clock.monotonic() - this.#sent.monotonic
    const jump = Math.abs(clock.now() - this.#sent.wall - passed)
    return passed < this.#timings.leaseMs * (1 - MARGIN) && jump <= MAX_JUMP_MS
  }

  /** Whether the process was stopped since it was last asked. */
  #hasSlept(): boolean {
    const before = this.#awake
    this.#awake = this.#now()
    const passed = this.#awake.monotonic - before.monotonic
    const jump = Math.abs(this.#awake.wall - before.wall - passed)
    return passed >= this.#timings.leaseMs * STALL || jump > MAX_JUMP_MS
  }

  async #stayAwake(): Promise<void> {
    const { clock } = this.#options
    const { signal } = this.#stopping
    const stepMs = (this.#timings.leaseMs * STALL) / LOOKS
    while (!signal.aborted) {
      await clock.sleep(stepMs, signal).catch(() => {})
      void this.state
    }
  }

  async #beat(): Promise<void> {
    const { clock } = this.#options
    const { signal } = this.#stopping
    let isRenewed = true
    while (!signal.aborted) {
      await this.#hurry.wait(clock, isRenewed ? this.#timings.beatMs : this.#timings.retryMs)
      if (!signal.aborted) isRenewed = await this.#renewOrRejoin()
    }
  }

  /** False when it has to be tried again soon. */
  async #renewOrRejoin(): Promise<boolean> {
    const { log } = this.#options
    const { state } = this
    const naps = this.#naps
    try {
      if (!isGivenUp(state) && (await this.#renew())) return this.#isInTime()
      if (await this.#isReplaced()) return this.#endReplaced()
      await this.#join()
      this.#options.onRejoined()
      return true
    } catch (err) {
      if (err instanceof ForgottenError) return this.#endForgotten(err)
      log.debug({ err }, 'the lease was not renewed')
      const isUnfit = err instanceof StartError
      if (isUnfit) this.#tellUnfit(err.message)
      // A check that began before the process was stopped is out of date.
      if (naps === this.#naps) this.#enter(isUnfit ? 'unfit' : 'failed')
      return false
    }
  }

  /** Once for each reason: it is tried again for days. */
  #tellUnfit(reason: string): void {
    if (reason === this.#unfit) return
    this.#unfit = reason
    this.#options.log.error({ reason }, 'this gateway is no longer part of the cluster')
  }

  /** False if others gave this node up. Throws if that is unknown. */
  async #renew(): Promise<boolean> {
    const { connection, nodeId } = this.#options
    const sent = this.#now()
    const [row] = await connection.query<{ off: number }>(
      `UPDATE nodes SET beat = beat + 1, standing = $3, facts = facts || ${CLOCK_OFF}
       WHERE id = $1 AND epoch = $2 RETURNING (facts->>'clockOffMs')::bigint AS off`,
      [nodeId, this.#epoch, this.#standing, sent.wall],
    )
    if (!row) {
      this.#enter('fenced')
      this.#options.log.warn({ epoch: this.#epoch }, 'the other nodes marked this node as lost')
      return false
    }
    this.#sent = sent
    this.#clockOffMs = row.off
    // The answer may have waited while the process was stopped.
    if (this.#isInTime()) this.#enter('renewed')
    return true
  }

  async #isReplaced(): Promise<boolean> {
    const { connection, nodeId, facts } = this.#options
    const rows = await connection.query('SELECT * FROM nodes WHERE id = $1', [nodeId])
    const [row] = NodeRowSchema.array().parse(rows)
    if (!row || !isThere(row) || row.facts.instance === facts.instance) return false
    // In an older copy of the database, it may be an earlier process.
    return row.epoch > this.#epoch
  }

  #endReplaced(): true {
    this.#enter('replaced')
    this.#stopping.abort('replaced')
    this.#options.log.error(
      'another process runs as this node: a restarted process, or a copy of its data directory',
    )
    this.#options.onReplaced()
    return true
  }

  #endForgotten(err: ForgottenError): true {
    this.#enter('forgotten')
    this.#stopping.abort('forgotten')
    this.#options.log.error({ node: this.nodeId }, err.message)
    this.#options.onForgotten()
    return true
  }

  async #join(): Promise<void> {
    const { connection, nodeId, facts, log } = this.#options
    const { epoch, off, sent } = await connection.transaction(async (statements) => {
      await statements.query('SELECT pg_advisory_xact_lock($1::bigint)', [JOIN_LOCK])
      const at = await forgottenAt(statements, nodeId)
      if (at !== undefined) throw new ForgottenError(nodeId, at)
      const others = await statements.query('SELECT * FROM nodes WHERE id <> $1', [nodeId])
      requireFit(facts, NodeRowSchema.array().parse(others))
      const sent = this.#now()
      const [row] = await statements.query<{ epoch: number; off: number }>(
        `INSERT INTO nodes (id, epoch, beat, standing, facts)
         VALUES ($1, 1, 1, $2, $3::jsonb || ${CLOCK_OFF})
         ON CONFLICT (id) DO UPDATE SET epoch = nodes.epoch + 1, beat = nodes.beat + 1,
           standing = excluded.standing, facts = excluded.facts
         RETURNING epoch, (facts->>'clockOffMs')::bigint AS off`,
        [nodeId, this.#standing, JSON.stringify(facts), sent.wall],
      )
      return { epoch: row?.epoch ?? 0, off: row?.off, sent }
    })
    this.#epoch = epoch
    this.#sent = sent
    this.#clockOffMs = off
    this.#unfit = undefined
    this.#enter('joined')
    log.info({ node: nodeId, epoch }, 'the node joined the cluster')
  }

  /** Best done, but not needed: without a beat, others find out. */
  async #deregister(): Promise<void> {
    if (!['held', 'overdue', 'unsure'].includes(this.#state)) return
    const { connection, nodeId } = this.#options
    const sql =
      "UPDATE nodes SET epoch = epoch + 1, standing = 'left' WHERE id = $1 AND epoch = $2 RETURNING epoch"
    const [row] = await connection
      .query<{ epoch: number }>(sql, [nodeId, this.#epoch])
      .catch(() => [])
    // The process has no names in this epoch, but may write until the end, unless a newer process exists by
    // then.
    if (row) this.#epoch = row.epoch
  }

  #now(): { readonly monotonic: number; readonly wall: number } {
    const { clock } = this.#options
    return { monotonic: clock.monotonic(), wall: clock.now() }
  }

  #enter(event: LeaseEvent): void {
    const before = this.#state
    this.#state = nextLeaseState(before, event)
    if (this.#state === before) return
    this.#since = this.#options.clock.monotonic()
    setImmediate(this.#options.onSettled)
  }
}

/** Only with another epoch it has a place again. */
const isGivenUp = (state: LeaseState) => state === 'fenced' || state === 'unfit'
