import type { Database, Statement } from '../../store/database.ts'
import type { Row as StoredRow } from '../../store/journal/rows.ts'

export interface ResourceTableOptions<Item, Row> {
  readonly database: Database
  readonly name: string
  readonly columns: readonly (keyof Row & string)[]
  readonly toRow: (item: Item) => Row
  readonly toItem: (row: Row) => Item
}

export interface PageRequest {
  /** Only items made before the one with this id. */
  readonly beforeId?: string | undefined
  readonly limit: number
}

/** What became of an item: one that is new has no `before`, one that is gone no `after`. */
export interface ItemChange<Item> {
  readonly before: Item | undefined
  readonly after: Item | undefined
}

/**
 * A table whose key is a sortable id: its order is the order in which the items were made. Items are
 * changed within `Database.change()` only.
 */
export class ResourceTable<Item extends { readonly id: string }, Row extends { id: string }> {
  readonly #database: Database
  readonly #select: string
  readonly #listeners: ((change: ItemChange<Item>) => void)[] = []
  #version = 0
  readonly #toRow: (item: Item) => Row
  readonly #toItem: (row: Row) => Item
  readonly #insert: Statement<[Row]>
  readonly #replace: Statement<[Row]>
  readonly #delete: Statement<[string]>
  readonly #get: Statement<[string], Row>
  readonly #newest: Statement<[number], Row>
  readonly #before: Statement<[string, number], Row>

  constructor({ database, name, columns, toRow, toItem }: ResourceTableOptions<Item, Row>) {
    this.#database = database
    this.#toRow = toRow
    this.#toItem = toItem
    const values = columns.map((column) => `@${column}`).join(', ')
    const changes = columns.map((column) => `${column} = @${column}`).join(', ')
    const select = `SELECT ${columns.join(', ')} FROM ${name}`
    this.#select = select
    this.#insert = database.prepare(
      `INSERT INTO ${name} (${columns.join(', ')}) VALUES (${values})`,
    )
    this.#replace = database.prepare(`UPDATE ${name} SET ${changes} WHERE id = @id`)
    this.#delete = database.prepare(`DELETE FROM ${name} WHERE id = ?`)
    this.#get = database.prepare(`${select} WHERE id = ?`)
    this.#newest = database.prepare(`${select} ORDER BY id DESC LIMIT ?`)
    this.#before = database.prepare(`${select} WHERE id < ? ORDER BY id DESC LIMIT ?`)
    const itemOf = (row: StoredRow | undefined) => row && toItem(row as unknown as Row)
    database.onRows((changes) => {
      for (const { table, before, after } of changes) {
        if (table !== name) continue
        this.#version += 1
        if (this.#listeners.length === 0) continue
        const change = { before: itemOf(before), after: itemOf(after) }
        for (const listener of this.#listeners) listener(change)
      }
    })
  }

  /** Tells what became of items, whoever changed them, when it is on stable storage. */
  onChange(listener: (change: ItemChange<Item>) => void): void {
    this.#listeners.push(listener)
  }

  /** Changes with every item, for those who keep what they have read. */
  get version(): number {
    return this.#version
  }

  insert(item: Item): void {
    this.#database.join(() => this.#insert.run(this.#toRow(item)))
  }

  replace(item: Item): void {
    this.#database.join(() => this.#replace.run(this.#toRow(item)))
  }

  /** False when it was not there. */
  delete(id: string): boolean {
    return this.#database.join(() => this.#delete.run(id).changes === 1)
  }

  get(id: string): Item | undefined {
    const row = this.#get.get(id)
    return row && this.#toItem(row)
  }

  /** Reads items by the value of a unique column. */
  protected getBy(column: keyof Row & string): (value: string) => Item | undefined {
    const statement = this.#database.prepare<[string], Row>(`${this.#select} WHERE ${column} = ?`)
    return (value) => {
      const row = statement.get(value)
      return row && this.#toItem(row)
    }
  }

  /** Newest first. */
  page({ beforeId, limit }: PageRequest): Item[] {
    const rows = beforeId ? this.#before.all(beforeId, limit) : this.#newest.all(limit)
    return rows.map(this.#toItem)
  }
}
