import { isThere, type NodeRow } from './node-facts.ts'

/** A longer pause between two looks was this node's own, or the database's. */
const MAX_STEP_MS = 2_000

interface Observed {
  readonly row: NodeRow
  /** For how long its beat has been seen to stand still. */
  silentMs: number
}

/**
 * The nodes of the cluster as this node sees them. Silence counts only while this node polls: after an outage
 * of the database, or an own pause, all nodes get time for a heartbeat.
 */
export class NodeTable {
  readonly #nodes = new Map<string, Observed>()
  #lookedAt: number | undefined

  /** Takes the result of a poll; `now` is monotonic, after the poll. */
  observe(rows: readonly NodeRow[], now: number): void {
    const step = Math.min(MAX_STEP_MS, now - (this.#lookedAt ?? now))
    this.#lookedAt = now
    const before = new Map(this.#nodes)
    this.#nodes.clear()
    for (const row of rows) {
      const known = before.get(row.id)
      const isSame = known?.row.beat === row.beat && known.row.epoch === row.epoch
      this.#nodes.set(row.id, { row, silentMs: isSame ? known.silentMs + step : 0 })
    }
  }

  /** Takes rows that another node has read. They show no silence, because their beats stand still meanwhile. */
  learn(rows: readonly NodeRow[]): void {
    this.#lookedAt = undefined
    this.#nodes.clear()
    for (const row of rows) this.#nodes.set(row.id, { row, silentMs: 0 })
  }

  find(id: string): NodeRow | undefined {
    return this.#nodes.get(id)?.row
  }

  all(): NodeRow[] {
    return Array.from(this.#nodes.values(), ({ row }) => row)
  }

  /** For how long its beat has stood still, as far as this node has looked. */
  silentMsOf(id: string): number | undefined {
    return this.#nodes.get(id)?.silentMs
  }

  /** Whether claims of that epoch of a node hold. */
  isValid(nodeId: string, epoch: number): boolean {
    const row = this.find(nodeId)
    return row !== undefined && row.epoch <= epoch && isThere(row)
  }

  /** Nodes that others may give up. */
  silent(leaseMs: number): NodeRow[] {
    const overdue = Array.from(this.#nodes.values()).filter(
      ({ row, silentMs }) => isThere(row) && silentMs >= leaseMs,
    )
    return overdue.map(({ row }) => row)
  }
}
