import { createHash } from 'node:crypto'
import * as z from 'zod'
import type { Logger } from '../base/logger.ts'
import type { Database, Statement } from '../store/database.ts'
import { KEPT_VALUES_MIGRATION } from './kept-values.ts'
import { isJsonObject, type TunnelSpec, TunnelSpecSchema } from './tunnel.ts'

/** Schema of all data that the agent stores. */
export const TUNNEL_MIGRATIONS = [
  {
    id: 'tunnels-1',
    sql: `CREATE TABLE tunnels (
      seq INTEGER PRIMARY KEY,
      id TEXT NOT NULL UNIQUE,
      protocol TEXT NOT NULL,
      forwards_to TEXT NOT NULL,
      domain TEXT NOT NULL UNIQUE,
      policy TEXT,
      created_at INTEGER NOT NULL,
      updated_at INTEGER NOT NULL,
      removed_at INTEGER,
      checksum TEXT NOT NULL
    ) STRICT`,
  },
  KEPT_VALUES_MIGRATION,
  { id: 'tunnels-2', sql: 'ALTER TABLE tunnels ADD COLUMN upstream TEXT' },
  {
    id: 'replaced-tunnels-1',
    sql: `CREATE TABLE replaced_tunnels (
      id TEXT PRIMARY KEY,
      tunnel TEXT NOT NULL
    ) STRICT`,
  },
  { id: 'tunnels-3', sql: 'ALTER TABLE tunnels ADD COLUMN pooled INTEGER' },
] as const

/** A wanted tunnel. Times are milliseconds since the epoch. */
export interface StoredTunnel {
  readonly id: string
  readonly spec: TunnelSpec
  readonly createdAt: number
  readonly updatedAt: number
}

/** Difference between the current rows and a new set. */
export interface SetChange {
  readonly created: readonly StoredTunnel[]
  /** New versions, with their previous ids. */
  readonly replaced: readonly StoredTunnel[]
  /** Ids. */
  readonly removed: readonly string[]
}

export interface LoadedTunnels {
  /** Oldest first. */
  readonly tunnels: readonly StoredTunnel[]
  /** Damaged rows, which stay unchanged for inspection. */
  readonly damaged: readonly DamagedRow[]
}

export interface DamagedRow {
  readonly id: string
  readonly domain: string
  readonly problem: string
}

/** Used instead of an id to conclude the write of a whole set. */
const WHOLE_SET = 'tunnels'

/** Columns that the checksum covers, in this order. */
const RowSchema = z.strictObject({
  id: z.string().min(1),
  protocol: z.string(),
  forwards_to: z.string(),
  domain: z.string(),
  policy: z.string().nullable(),
  created_at: z.int(),
  updated_at: z.int(),
  upstream: z.string().nullable(),
  pooled: z.literal(1).nullable().default(null),
})
type Row = z.output<typeof RowSchema>
type CheckedRow = Row & { readonly checksum: string }

const COLUMNS = Object.keys(RowSchema.shape).join(', ')

/** The rows of `tunnels`. Does not know whether a tunnel is open. */
export class TunnelStore {
  readonly #database: Database
  readonly #select: Statement<[], CheckedRow>
  readonly #insert: Statement<[CheckedRow]>
  readonly #update: Statement<[CheckedRow]>
  readonly #selectReplaced: Statement<[], { id: string; tunnel: string }>
  readonly #remember: Statement<[string, string]>
  readonly #forget: Statement<[string]>
  readonly #keep: Statement<[string]>
  readonly #markRemoved: Statement<[number, string]>
  readonly #delete: Statement<[string]>
  readonly #deleteRemoved: Statement<[]>

  constructor(database: Database) {
    this.#database = database
    this.#select = database.prepare(
      `SELECT ${COLUMNS}, checksum FROM tunnels WHERE removed_at IS NULL ORDER BY seq`,
    )
    // The agent checks which domains are in use, so only a damaged row can be replaced here.
    this.#insert = database.prepare(
      `INSERT OR REPLACE INTO tunnels (${COLUMNS}, checksum, removed_at)
       VALUES (@id, @protocol, @forwards_to, @domain, @policy, @created_at, @updated_at, @upstream,
         @pooled, @checksum, @created_at)`,
    )
    this.#keep = database.prepare('UPDATE tunnels SET removed_at = NULL WHERE id = ?')
    this.#update = database.prepare(
      `UPDATE tunnels SET protocol = @protocol, forwards_to = @forwards_to, domain = @domain,
         policy = @policy, updated_at = @updated_at, upstream = @upstream, pooled = @pooled,
         checksum = @checksum WHERE id = @id`,
    )
    this.#selectReplaced = database.prepare('SELECT id, tunnel FROM replaced_tunnels')
    this.#remember = database.prepare('INSERT OR REPLACE INTO replaced_tunnels VALUES (?, ?)')
    this.#forget = database.prepare('DELETE FROM replaced_tunnels WHERE id = ?')
    this.#markRemoved = database.prepare('UPDATE tunnels SET removed_at = ? WHERE id = ?')
    this.#delete = database.prepare('DELETE FROM tunnels WHERE id = ?')
    this.#deleteRemoved = database.prepare('DELETE FROM tunnels WHERE removed_at IS NOT NULL')
  }

  /** Reads each row separately, so that a damaged one does not hide the others. */
  load(): LoadedTunnels {
    const tunnels: StoredTunnel[] = []
    const damaged: DamagedRow[] = []
    const replaced = this.#replaced()
    for (const row of this.#select.iterate()) {
      const read = readRow(replaced.get(row.id) ?? row)
      if ('problem' in read) damaged.push(read)
      else tunnels.push(read)
    }
    return { tunnels, damaged }
  }

  /** Inserts the row as unwanted until `keep`, so that a refused tunnel needs no delete. */
  insert(tunnel: StoredTunnel): void {
    this.#database.write(() => this.#insert.run(toRow(tunnel)))
  }

  /** Marks the tunnel as wanted: final write of a create. */
  keep(id: string): void {
    this.#database.write(() => this.#keep.run(id), { concludes: id })
  }

  /**
   * Replaces a row, except id, domain and creation time. `load` returns the previous version until
   * `keepReplacement`.
   */
  replace(before: StoredTunnel, after: StoredTunnel): void {
    this.#database.write(() => {
      this.#remember.run(before.id, JSON.stringify(toRow(before)))
      this.#update.run(toRow(after))
    })
  }

  keepReplacement(id: string): void {
    this.#database.write(() => this.#forget.run(id), { mayUseReserve: true, concludes: id })
  }

  /** Reverts `replace`. */
  putBack(before: StoredTunnel): void {
    const undo = () => {
      this.#update.run(toRow(before))
      this.#forget.run(before.id)
    }
    this.#database.write(undo, { mayUseReserve: true })
  }

  /** Replaces a row, except id and creation time. Takes effect at once. */
  update(tunnel: StoredTunnel): void {
    this.#database.write(() => this.#update.run(toRow(tunnel)))
  }

  /** Replaces all rows in one write, after which the whole set is wanted. */
  changeSet({ created, replaced, removed }: SetChange): void {
    const change = () => {
      for (const id of removed) {
        this.#delete.run(id)
        this.#forget.run(id)
      }
      for (const tunnel of replaced) {
        this.#update.run(toRow(tunnel))
        this.#forget.run(tunnel.id)
      }
      for (const tunnel of created) {
        this.#insert.run(toRow(tunnel))
        this.#keep.run(tunnel.id)
      }
    }
    const onlyFrees = created.length === 0 && replaced.length === 0
    this.#database.write(change, { mayUseReserve: onlyFrees, concludes: WHOLE_SET })
  }

  /** Marks the tunnel as unwanted, even if the process ends before its row is deleted. */
  markRemoved(id: string, now: number): void {
    this.#database.write(() => this.#markRemoved.run(now, id), { mayUseReserve: true })
  }

  /** Deletes the row. `isRemoval`: final write of a removal, and not the cleanup of a refused tunnel. */
  delete(id: string, { isRemoval = false } = {}): void {
    const concluding = isRemoval ? { concludes: id } : {}
    const remove = () => {
      this.#delete.run(id)
      this.#forget.run(id)
    }
    this.#database.write(remove, { mayUseReserve: true, ...concluding })
  }

  /** Deletes rows marked as removed by an earlier process, whose sessions have ended. */
  deleteRemoved(log: Logger): void {
    try {
      this.#database.write(() => this.#deleteRemoved.run(), { mayUseReserve: true })
    } catch (error) {
      log.warn({ err: error }, 'cannot delete removed tunnels from the database yet')
    }
  }

  /** Returns the previous versions of tunnels whose change was not kept. */
  #replaced(): Map<string, CheckedRow> {
    const rows = new Map<string, CheckedRow>()
    for (const { id, tunnel } of this.#selectReplaced.iterate()) {
      const row = parsed(tunnel)
      if (row) rows.set(id, row)
    }
    return rows
  }
}

/** Returns undefined if it is not an object. Further checks are the same as for other rows. */
function parsed(text: string): CheckedRow | undefined {
  try {
    const value = JSON.parse(text)
    return isJsonObject(value) ? (value as unknown as CheckedRow) : undefined
  } catch {
    return undefined
  }
}

function toRow({ id, spec, createdAt, updatedAt }: StoredTunnel): CheckedRow {
  const row: Row = {
    id,
    protocol: spec.protocol,
    forwards_to: spec.forwardsTo,
    // Unique: the id replaces an address that is not known yet.
    domain: spec.domain || id,
    policy: spec.policy && JSON.stringify(spec.policy),
    created_at: createdAt,
    updated_at: updatedAt,
    upstream: spec.upstream ? JSON.stringify(spec.upstream) : null,
    pooled: spec.isPooled ? 1 : null,
  }
  return { ...row, checksum: checksumOf(row) }
}

function readRow({ checksum, ...row }: CheckedRow): StoredTunnel | DamagedRow {
  const marks = { id: String(row.id), domain: String(row.domain) }
  try {
    const read = RowSchema.parse(row)
    if (checksum !== checksumOf(read)) return { ...marks, problem: 'the checksum is wrong' }
    const { protocol, forwards_to, domain, policy, upstream, pooled } = read
    const spec = TunnelSpecSchema.parse({
      protocol,
      forwards_to,
      domain: domain === read.id ? '' : domain,
      policy: policy === null ? null : JSON.parse(policy),
      upstream: upstream === null ? null : JSON.parse(upstream),
      pooling_enabled: pooled === 1,
    })
    return { id: read.id, spec, createdAt: read.created_at, updatedAt: read.updated_at }
  } catch (error) {
    return { ...marks, problem: error instanceof Error ? error.message : String(error) }
  }
}

/**
 * Returns the checksum of a row. A flipped bit in a port would expose another service to the public, and the
 * database cannot detect it.
 *
 * Rows without a value in a later column have the same checksum as before that column existed.
 */
function checksumOf({ upstream, pooled, ...first }: Row): string {
  const columns = Object.keys(RowSchema.shape).filter((column) => column in first)
  const parts = columns.map((column) => first[column as keyof typeof first])
  for (const later of [upstream, pooled]) if (later !== null) parts.push(later)
  return createHash('sha256').update(JSON.stringify(parts)).digest('hex').slice(0, 16)
}
