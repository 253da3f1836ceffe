import type { Logger } from '../base/logger.ts'
import type { Database, Statement } from '../store/database.ts'

/** What the agent remembers beside its tunnels. */
export type KeptName = 'default-policy' | 'public-port' | 'provisioned-token'

export const KEPT_VALUES_MIGRATION = {
  id: 'kept-values-1',
  sql: `CREATE TABLE kept_values (
    name TEXT PRIMARY KEY,
    value TEXT NOT NULL
  ) STRICT`,
}

export interface KeptValuesOptions {
  /** Another process may still take the database back: nothing is written before `begin()`. */
  readonly isProvisional?: boolean | undefined
}

/** Single values that outlive the process. */
export class KeptValues {
  readonly #database: Database
  /** What is to be written at `begin()`; undefined from then on. */
  #held: Map<KeptName, string> | undefined
  readonly #select: Statement<[string], { value: string }>
  readonly #upsert: Statement<[string, string]>

  constructor(database: Database, { isProvisional = false }: KeptValuesOptions = {}) {
    this.#database = database
    if (isProvisional) this.#held = new Map()
    this.#select = database.prepare('SELECT value FROM kept_values WHERE name = ?')
    this.#upsert = database.prepare(
      `INSERT INTO kept_values (name, value) VALUES (?, ?)
       ON CONFLICT (name) DO UPDATE SET value = excluded.value`,
    )
  }

  get(name: KeptName): string | undefined {
    return this.#held?.get(name) ?? this.#select.get(name)?.value
  }

  /** Writes what was held back, and what comes from now on. */
  begin(log: Logger): void {
    const held = this.#held
    this.#held = undefined
    try {
      for (const [name, value] of held ?? []) this.set(name, value)
    } catch (error) {
      log.warn({ err: error }, 'cannot save the values received during the start')
    }
  }

  /** Writes only what differs: storage on devices wears out. */
  set(name: KeptName, value: string): void {
    if (this.get(name) === value) return
    if (this.#held) {
      this.#held.set(name, value)
      return
    }
    this.#database.write(() => this.#upsert.run(name, value))
  }
}
