import type { Database, Statement } from '../../store/database.ts'
import type { Migration } from '../../store/migrations.ts'
import { ResourceTable } from './resource-table.ts'

export const API_KEY_MIGRATIONS: readonly Migration[] = [
  {
    id: 'api-keys-1',
    sql: `CREATE TABLE api_keys (
      id TEXT PRIMARY KEY,
      owner_id TEXT REFERENCES bot_users (id) ON DELETE CASCADE,
      description TEXT NOT NULL,
      metadata TEXT NOT NULL,
      token_hash TEXT NOT NULL,
      created_at INTEGER NOT NULL
    ) STRICT, WITHOUT ROWID`,
  },
]

/** A key to the management API. Only the hash of the token is kept. */
export interface ApiKey {
  readonly id: string
  readonly ownerId: string | null
  readonly description: string
  readonly metadata: string
  readonly tokenHash: string
  readonly createdAt: number
}

interface ApiKeyRow {
  id: string
  owner_id: string | null
  description: string
  metadata: string
  token_hash: string
  created_at: number
}

export class ApiKeyStore extends ResourceTable<ApiKey, ApiKeyRow> {
  readonly #idsDescribed: Statement<[string], string>

  constructor(database: Database) {
    super({
      database,
      name: 'api_keys',
      columns: ['id', 'owner_id', 'description', 'metadata', 'token_hash', 'created_at'],
      toRow: ({ ownerId, tokenHash, createdAt, ...row }) => ({
        ...row,
        owner_id: ownerId,
        token_hash: tokenHash,
        created_at: createdAt,
      }),
      toItem: ({ owner_id, token_hash, created_at, ...item }) => ({
        ...item,
        ownerId: owner_id,
        tokenHash: token_hash,
        createdAt: created_at,
      }),
    })
    this.#idsDescribed = database
      .prepare<[string], string>('SELECT id FROM api_keys WHERE description = ? ORDER BY id')
      .pluck()
  }

  /** The keys whose description is exactly this. */
  idsDescribed(description: string): string[] {
    return this.#idsDescribed.all(description)
  }
}
