import type { Database, Statement } from '../../store/database.ts'

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

/** A table whose key is a sortable id: its order is the order in which the items were made. */
export class ResourceTable<Item extends { readonly id: string }, Row extends { id: string }> {
  readonly #database: Database
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
    this.#insert = database.prepare(
      `INSERT INTO ${name} (${columns.join(', ')}) VALUES (${values})`,
    )
    this.#replace = database.prepare(`UPDATE ${name} SET ${changes} WHERE id = @id`)
    this.#delete = database.prepare(`DELETE FROM ${name} WHERE id = ?`)
    this.#get = database.prepare(`${select} WHERE id = ?`)
    this.#newest = database.prepare(`${select} ORDER BY id DESC LIMIT ?`)
    this.#before = database.prepare(`${select} WHERE id < ? ORDER BY id DESC LIMIT ?`)
  }

  /** Changes with every write, for those who keep what they have read. */
  get version(): number {
    return this.#version
  }

  insert(item: Item): void {
    this.#version += 1
    this.#database.write(() => this.#insert.run(this.#toRow(item)))
  }

  replace(item: Item): void {
    this.#version += 1
    this.#database.write(() => this.#replace.run(this.#toRow(item)))
  }

  /** False when it was not there. */
  delete(id: string): boolean {
    this.#version += 1
    return this.#database.write(() => this.#delete.run(id).changes === 1, { mayUseReserve: true })
  }

  get(id: string): Item | undefined {
    const row = this.#get.get(id)
    return row && this.#toItem(row)
  }

  /** Newest first. */
  page({ beforeId, limit }: PageRequest): Item[] {
    const rows = beforeId ? this.#before.all(beforeId, limit) : this.#newest.all(limit)
    return rows.map(this.#toItem)
  }
}
