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
]

/** The one token that the agent made for its API: only its hash. */
export class ApiTokenStore {
  readonly #database: Database
  readonly #read: Statement<[], { token_hash: string }>
  readonly #write: Statement<[string, number]>

  constructor(database: Database) {
    this.#database = database
    this.#read = database.prepare('SELECT token_hash FROM api_token')
    this.#write = database.prepare(
      'INSERT OR REPLACE INTO api_token (id, token_hash, created_at) VALUES (1, ?, ?)',
    )
  }

  hash(): string | undefined {
    return this.#read.get()?.token_hash
  }

  keep(hash: string, createdAt: number): void {
    this.#database.write(() => this.#write.run(hash, createdAt))
  }
}
