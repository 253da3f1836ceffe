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
  {
    // Keys from before scopes keep all rights.
    id: 'api-keys-2',
    sql: `ALTER TABLE api_keys ADD COLUMN name TEXT NOT NULL DEFAULT '';
      ALTER TABLE api_keys ADD COLUMN scope TEXT NOT NULL DEFAULT 'write'
        CHECK (scope IN ('read', 'write'));
      ALTER TABLE api_keys ADD COLUMN owner_only INTEGER NOT NULL DEFAULT 0
        CHECK (owner_only IN (0, 1));
      ALTER TABLE api_keys ADD COLUMN expires_at INTEGER;
      ALTER TABLE api_keys ADD COLUMN last_used_at INTEGER;
      UPDATE api_keys SET name = CASE description WHEN '' THEN id ELSE description END`,
  },
]

/** Rights of a key: read, or read and write. */
export const API_KEY_SCOPES = ['read', 'write'] as const
export type ApiKeyScope = (typeof API_KEY_SCOPES)[number]

/** A key to the management API. Only the hash of the token is kept. */
export interface ApiKey {
  readonly id: string
  readonly ownerId: string | null
  /** Name given by people; never empty. */
  readonly name: string
  readonly description: string
  readonly metadata: string
  readonly scope: ApiKeyScope
  /** Whether it can access only its owner's items. */
  readonly isOwnerOnly: boolean
  /** Milliseconds since the epoch, as all times here; null when it has no end. */
  readonly expiresAt: number | null
  /** To the minute; null when it was never used. */
  readonly lastUsedAt: number | null
  readonly tokenHash: string
  readonly createdAt: number
}

export class ApiKeyStore extends ResourceTable<ApiKey> {
  readonly #database: Database
  readonly #idsDescribed: Statement<[string], string>
  readonly #noteUse: Statement<[number, string]>

  constructor(database: Database) {
    super({
      database,
      name: 'api_keys',
      columns: {
        id: 'plain',
        ownerId: 'plain',
        name: 'plain',
        description: 'plain',
        metadata: 'plain',
        scope: 'plain',
        isOwnerOnly: 'flag',
        expiresAt: 'plain',
        lastUsedAt: 'plain',
        tokenHash: 'plain',
        createdAt: 'plain',
      },
    })
    this.#idsDescribed = database
      .prepare<[string], string>('SELECT id FROM api_keys WHERE description = ? ORDER BY id')
      .pluck()
    this.#database = database
    this.#noteUse = database.prepare('UPDATE api_keys SET last_used_at = ? WHERE id = ?')
  }

  noteUse(id: string, at: number): void {
    this.#database.join(() => this.#noteUse.run(at, id))
  }

  /** Keys with exactly this description. */
  idsDescribed(description: string): string[] {
    return this.#idsDescribed.all(description)
  }
}
