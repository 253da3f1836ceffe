import type { Scope } from '../http/caller.ts'
import type { Database, Statement } from '../store/database.ts'
import type { Migration } from '../store/migrations.ts'

export const API_TOKEN_MIGRATIONS: readonly Migration[] = [
  {
    id: 'api-token-1',
    sql: `CREATE TABLE api_token (
      id INTEGER PRIMARY KEY CHECK (id = 1),
      token_hash TEXT NOT NULL,
      created_at INTEGER NOT NULL
    ) STRICT`,
  },
  {
    id: 'api-token-2',
    sql: `CREATE TABLE api_tokens (
      id TEXT PRIMARY KEY,
      name TEXT NOT NULL UNIQUE,
      scope TEXT NOT NULL CHECK (scope IN ('read', 'write')),
      created_at INTEGER NOT NULL,
      expires_at INTEGER,
      last_used_at INTEGER
    ) STRICT, WITHOUT ROWID;
    CREATE TABLE api_token_secrets (
      hash TEXT PRIMARY KEY,
      token_id TEXT NOT NULL REFERENCES api_tokens (id) ON DELETE CASCADE,
      ends_at INTEGER
    ) STRICT, WITHOUT ROWID;
    INSERT INTO api_tokens (id, name, scope, created_at)
      SELECT 'owner', 'owner', 'write', created_at FROM api_token;
    INSERT INTO api_token_secrets (hash, token_id) SELECT token_hash, 'owner' FROM api_token;
    DROP TABLE api_token`,
  },
]

/** A token of the API. Times are milliseconds since the epoch. */
export interface ApiToken {
  readonly id: string
  /** No two have the same. */
  readonly name: string
  readonly scope: Scope
  readonly createdAt: number
  readonly expiresAt: number | null
  readonly lastUsedAt: number | null
}

/** A secret of a token, as SHA-256. During a rotation, several are valid. */
export interface ApiTokenSecret {
  readonly hash: string
  readonly tokenId: string
  /** Null for the newest. */
  readonly endsAt: number | null
}

/** The tokens of the API. The methods that change rows belong into a transaction. */
export class ApiTokenStore {
  readonly #database: Database
  readonly #tokens: Statement<[], ApiToken>
  readonly #secrets: Statement<[], ApiTokenSecret>
  readonly #put: Statement<[ApiToken]>
  readonly #use: Statement<[number, string]>
  readonly #delete: Statement<[string]>
  readonly #dropSecrets: Statement<[string]>
  readonly #putSecret: Statement<[ApiTokenSecret]>

  constructor(database: Database) {
    this.#database = database
    this.#tokens = database.prepare(
      `SELECT id, name, scope, created_at AS createdAt, expires_at AS expiresAt,
         last_used_at AS lastUsedAt
       FROM api_tokens ORDER BY created_at, id`,
    )
    this.#secrets = database.prepare(
      'SELECT hash, token_id AS tokenId, ends_at AS endsAt FROM api_token_secrets',
    )
    this.#put = database.prepare(
      `INSERT INTO api_tokens (id, name, scope, created_at, expires_at, last_used_at)
       VALUES (@id, @name, @scope, @createdAt, @expiresAt, @lastUsedAt)
       ON CONFLICT (id) DO UPDATE SET expires_at = excluded.expires_at`,
    )
    this.#use = database.prepare('UPDATE api_tokens SET last_used_at = ? WHERE id = ?')
    this.#delete = database.prepare('DELETE FROM api_tokens WHERE id = ?')
    this.#dropSecrets = database.prepare('DELETE FROM api_token_secrets WHERE token_id = ?')
    this.#putSecret = database.prepare(
      'INSERT INTO api_token_secrets (hash, token_id, ends_at) VALUES (@hash, @tokenId, @endsAt)',
    )
  }

  /** Oldest first. */
  tokens(): ApiToken[] {
    return this.#tokens.all()
  }

  secrets(): ApiTokenSecret[] {
    return this.#secrets.all()
  }

  /** Replaces a token and its secrets. */
  put(token: ApiToken, secrets: readonly ApiTokenSecret[]): void {
    this.#put.run(token)
    this.#dropSecrets.run(token.id)
    for (const secret of secrets) this.#putSecret.run(secret)
  }

  delete(id: string): void {
    this.#delete.run(id)
  }

  noteUse(id: string, at: number): void {
    this.#database.write(() => this.#use.run(at, id), { withoutBackup: true })
  }
}
