import type { Logger } from '../../base/logger.ts'
import type { Connection, Statement } from '../sqlite.ts'
import {
  fromCell,
  type Key,
  keyText,
  listTables,
  quote,
  type Row,
  type RowChange,
  sameRow,
  type Table,
  toRow,
} from './rows.ts'

/** Called with the rows that a transaction has changed. */
export type RowListener = (changes: readonly RowChange[]) => void

/** Reports changed rows that are on stable storage. Listeners cannot undo the change. */
export class RowFeed {
  readonly #log: Logger
  readonly #listeners: RowListener[] = []

  constructor(log: Logger) {
    this.#log = log
  }

  follow(listener: RowListener): void {
    this.#listeners.push(listener)
  }

  tell(changes: readonly RowChange[]): void {
    if (changes.length === 0) return
    for (const listener of this.#listeners) {
      try {
        listener(changes)
      } catch (error) {
        this.#log.error({ err: error }, 'cannot process a change of the database')
      }
    }
  }
}

interface Touched {
  readonly table: string
  readonly key: Key
  readonly before: Row | undefined
}

const FUNCTION = 'note_touched_row'

/**
 * Records the rows that a transaction changes, in any table and by any code. It uses temporary triggers of
 * this connection, which are not in the file. They also see cascades and replaced rows.
 */
export class RowRecorder {
  readonly #connection: Connection
  readonly #selects = new Map<string, Statement<unknown[], Record<string, unknown>>>()
  readonly #touched = new Map<string, Touched>()

  constructor(connection: Connection) {
    this.#connection = connection
  }

  /** Creates the triggers. Call it when the schema is final. */
  start(): void {
    const connection = this.#connection
    connection.pragma('temp_store = MEMORY')
    // Without this, rows deleted by INSERT OR REPLACE are not seen.
    connection.pragma('recursive_triggers = ON')
    const tables = new Map(listTables(connection).map((table) => [table.name, table]))
    connection.function(FUNCTION, { varargs: true }, (...told: unknown[]) => {
      const [name, wasThere, ...values] = told
      const table = tables.get(String(name))
      if (table) this.#note(table, wasThere === 1, values)
      return null
    })
    for (const { name, columns, key } of tables.values()) {
      const where = key.map((column) => `${quote(column)} = ?`).join(' AND ')
      const cells = columns.map(quote).join(', ')
      this.#selects.set(
        name,
        connection.prepare(`SELECT ${cells} FROM main.${quote(name)} WHERE ${where}`),
      )
      const call = (row: 'OLD' | 'NEW', names: readonly string[]) => {
        const values = names.map((column) => `${row}.${quote(column)}`).join(', ')
        const wasThere = row === 'OLD' ? 1 : 0
        return `SELECT ${FUNCTION}('${name.replaceAll("'", "''")}', ${wasThere}, ${values});`
      }
      const actions = {
        INSERT: call('NEW', key),
        UPDATE: call('OLD', columns) + call('NEW', key),
        DELETE: call('OLD', columns),
      }
      for (const [event, body] of Object.entries(actions)) {
        const trigger = quote(`note ${event} ${name}`)
        connection.exec(
          `CREATE TEMP TRIGGER ${trigger} AFTER ${event} ON main.${quote(name)} BEGIN ${body} END`,
        )
      }
    }
  }

  /** Forgets earlier transactions. Call it at the start of each transaction. */
  clear(): void {
    this.#touched.clear()
  }

  /**
   * Returns the net changes of the current transaction. Reads the rows again, because rolled back statements
   * are recorded too.
   */
  changes(): RowChange[] {
    const changes: RowChange[] = []
    for (const { table, key, before } of this.#touched.values()) {
      const read = this.#selects.get(table)?.get(...key.map(fromCell))
      const after = read && toRow(read)
      if (!sameRow(before, after)) changes.push({ table, key, before, after })
    }
    return changes
  }

  /**
   * Records a changed row. `values` has all columns of a row that existed before, otherwise only the key. The
   * first record of a row counts.
   */
  #note(table: Table, wasThere: boolean, values: readonly unknown[]): void {
    const names = wasThere ? table.columns : table.key
    const row = toRow(Object.fromEntries(names.map((name, at) => [name, values[at]])))
    const key = table.key.map((name) => row[name] ?? null)
    const mark = `${table.name} ${keyText(key)}`
    if (this.#touched.has(mark)) return
    this.#touched.set(mark, { table: table.name, key, before: wasThere ? row : undefined })
  }
}
