import type { Database } from '../store/database.ts'
import type { Migration } from '../store/migrations.ts'
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
  constructor(database: Database) {
    super({
      database,
      name: 'api_keys',
      columns: ['id', 'owner_id', 'description', 'metadata', 'token_hash', 'created_at'],
      toRow: (item) => ({
        id: item.id,
        owner_id: item.ownerId,
        description: item.description,
        metadata: item.metadata,
        token_hash: item.tokenHash,
        created_at: item.createdAt,
      }),
      toItem: (row) => ({
        id: row.id,
        ownerId: row.owner_id,
        description: row.description,
        metadata: row.metadata,
        tokenHash: row.token_hash,
        createdAt: row.created_at,
      }),
    })
  }
}
