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
  /** Bot user of the account; null for the gateway's owner. */
  readonly ownerId: string | null
  readonly region: string
  readonly description: string
  readonly metadata: string
  readonly createdAt: number
}

export class ReservedAddrStore extends ResourceTable<ReservedAddr> {
  /** The reservation of an address. */
  readonly find = this.getBy('addr')
  readonly #countOf: Statement<[string], number>

  constructor(database: Database) {
    super({
      database,
      name: 'reserved_addrs',
      columns: {
        id: 'plain',
        addr: 'plain',
        ownerId: 'plain',
        region: 'plain',
        description: 'plain',
        metadata: 'plain',
        createdAt: 'plain',
      },
    })
    this.#countOf = database
      .prepare<[string], number>('SELECT count(*) FROM reserved_addrs WHERE owner_id = ?')
      .pluck()
  }

  /** How many a bot user has. */
  countOf(ownerId: string): number {
    return this.#countOf.get(ownerId) ?? 0
  }
}
