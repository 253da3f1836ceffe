import type { BrowserSession } from '../../http/pages/browser-sessions.ts'
import type { Database, Statement } from '../../store/database.ts'
import type { Migration } from '../../store/migrations.ts'

export const CONSOLE_SESSION_MIGRATIONS: readonly Migration[] = [
  {
    id: 'console-sessions-1',
    sql: `CREATE TABLE console_sessions (
      hash TEXT PRIMARY KEY,
      api_key_id TEXT NOT NULL REFERENCES api_keys (id) ON DELETE CASCADE,
      opened_at INTEGER NOT NULL,
      used_at INTEGER NOT NULL
    ) STRICT, WITHOUT ROWID`,
  },
]

const COLUMNS = 'hash, api_key_id AS holder, opened_at AS openedAt, used_at AS usedAt'

/**
 * Sessions of the console at all gateways of a site. The holder of a session is an API key. Change only
 * within `Database.change()`.
 */
export class ConsoleSessionStore {
  readonly #database: Database
  readonly #find: Statement<[string], BrowserSession>
  readonly #all: Statement<[], BrowserSession>
  readonly #insert: Statement<[string, string, number, number]>
  readonly #noteUse: Statement<[number, string]>
  readonly #delete: Statement<[string]>

  constructor(database: Database) {
    this.#database = database
    this.#find = database.prepare(`SELECT ${COLUMNS} FROM console_sessions WHERE hash = ?`)
    this.#all = database.prepare(`SELECT ${COLUMNS} FROM console_sessions ORDER BY used_at, hash`)
    this.#insert = database.prepare('INSERT INTO console_sessions VALUES (?, ?, ?, ?)')
    this.#noteUse = database.prepare('UPDATE console_sessions SET used_at = ? WHERE hash = ?')
    this.#delete = database.prepare('DELETE FROM console_sessions WHERE hash = ?')
  }

  find(hash: string): BrowserSession | undefined {
    return this.#find.get(hash)
  }

  /** Least recently used first. */
  all(): BrowserSession[] {
    return this.#all.all()
  }

  insert({ hash, holder, openedAt, usedAt }: BrowserSession): void {
    this.#database.join(() => this.#insert.run(hash, holder, openedAt, usedAt))
  }

  noteUse(hash: string, at: number): void {
    this.#database.join(() => this.#noteUse.run(at, hash))
  }

  delete(hash: string): void {
    this.#database.join(() => this.#delete.run(hash))
  }
}
