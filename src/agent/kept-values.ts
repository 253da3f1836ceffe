import type { Database, Statement } from '../store/database.ts'

/** Values that the agent stores in addition to tunnels. */
export type KeptName = 'default-policy' | 'public-port' | 'provisioned-token'

export const KEPT_VALUES_MIGRATION = {
  id: 'kept-values-1',
  sql: `CREATE TABLE kept_values (
    name TEXT PRIMARY KEY,
    value TEXT NOT NULL
  ) STRICT`,
}

/** Single values that are stored across restarts. */
export class KeptValues {
  readonly #database: Database
  readonly #select: Statement<[string], { value: string }>
  readonly #upsert: Statement<[string, string]>

  constructor(database: Database) {
    this.#database = database
    this.#select = database.prepare('SELECT value FROM kept_values WHERE name = ?')
    this.#upsert = database.prepare(
      `INSERT INTO kept_values (name, value) VALUES (?, ?)
       ON CONFLICT (name) DO UPDATE SET value = excluded.value`,
    )
  }

  get(name: KeptName): string | undefined {
    return this.#select.get(name)?.value
  }

  /** Writes only changed values, because storage of devices wears out. */
  set(name: KeptName, value: string): void {
    if (this.get(name) === value) return
    this.#database.write(() => this.#upsert.run(name, value))
  }
}
