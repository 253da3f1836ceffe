import type { Database, Statement } from '../../store/database.ts'
import type { Migration } from '../../store/migrations.ts'
import { ResourceTable } from './resource-table.ts'

export const RESERVED_ADDR_MIGRATIONS: readonly Migration[] = [
  {
    id: 'reserved-addrs-1',
    sql: `CREATE TABLE reserved_addrs (
      id TEXT PRIMARY KEY,
      addr TEXT NOT NULL UNIQUE,
      owner_id TEXT REFERENCES bot_users (id) ON DELETE SET NULL,
      region TEXT NOT NULL,
      description TEXT NOT NULL,
      metadata TEXT NOT NULL,
      created_at INTEGER NOT NULL
    ) STRICT, WITHOUT ROWID`,
  },
]

/** A TCP address that is for one account alone, whether or not an endpoint has it. */
export interface ReservedAddr {
  readonly id: string
  /** `host:port`, lower case. */
  readonly addr: string
  /** The bot user that it belongs to; null for one that belongs to the gateway's owner. */
  readonly ownerId: string | null
  readonly region: string
  readonly description: string
  readonly metadata: string
  readonly createdAt: number
}

interface ReservedAddrRow {
  id: string
  addr: string
  owner_id: string | null
  region: string
  description: string
  metadata: string
  created_at: number
}

export class ReservedAddrStore extends ResourceTable<ReservedAddr, ReservedAddrRow> {
  readonly #idOf: Statement<[string], string>
  readonly #countOf: Statement<[string], number>

  constructor(database: Database) {
    super({
      database,
      name: 'reserved_addrs',
      columns: ['id', 'addr', 'owner_id', 'region', 'description', 'metadata', 'created_at'],
      toRow: ({ ownerId, createdAt, ...row }) => ({
        ...row,
        owner_id: ownerId,
        created_at: createdAt,
      }),
      toItem: ({ owner_id, created_at, ...item }) => ({
        ...item,
        ownerId: owner_id,
        createdAt: created_at,
      }),
    })
    this.#idOf = database
      .prepare<[string], string>('SELECT id FROM reserved_addrs WHERE addr = ?')
      .pluck()
    this.#countOf = database
      .prepare<[string], number>('SELECT count(*) FROM reserved_addrs WHERE owner_id = ?')
      .pluck()
  }

  /** The reservation of an address. */
  find(addr: string): ReservedAddr | undefined {
    const id = this.#idOf.get(addr)
    return id === undefined ? undefined : this.get(id)
  }

  /** How many a bot user has. */
  countOf(ownerId: string): number {
    return this.#countOf.get(ownerId) ?? 0
  }
}
