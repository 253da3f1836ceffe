import type { Database, Statement } from '../../store/database.ts'
import type { Row as StoredRow } from '../../store/journal/rows.ts'

/** Storage of a value: unchanged, as 0 or 1, or as JSON; null is not stored as JSON. */
type Form<Value> = [Value] extends [boolean]
  ? 'flag'
  : [Value] extends [string | number | null]
    ? 'plain'
    : 'json'

/** All properties of an item. `isOwnerOnly` is kept in the column `owner_only`, `createdAt` in `created_at`. */
export type Columns<Item> = { readonly [Property in keyof Item & string]-?: Form<Item[Property]> }

type Value = string | number | null
type Row = Record<string, Value>

export interface ResourceTableOptions<Item> {
  readonly database: Database
  readonly name: string
  readonly columns: Columns<Item>
}

export interface PageRequest {
  /** Only items that were created before the item with this id. */
  readonly beforeId?: string | undefined
  readonly limit: number
}

/** A change of an item. A new item has no `before`, a deleted item no `after`. */
export interface ItemChange<Item> {
  readonly before: Item | undefined
  readonly after: Item | undefined
}

/**
 * A table with a sortable id as its key: items sort by creation. Change items only within
 * `Database.change()`.
 */
export class ResourceTable<Item extends { readonly id: string }> {
  readonly #database: Database
  readonly #select: string
  readonly #columns: readonly {
    property: keyof Item
    name: string
    form: 'plain' | 'flag' | 'json'
  }[]
  readonly #listeners: ((change: ItemChange<Item>) => void)[] = []
  #version = 0
  readonly #insert: Statement<[Row]>
  readonly #replace: Statement<[Row]>
  readonly #delete: Statement<[string]>
  readonly #get: Statement<[string], Row>
  readonly #newest: Statement<[number], Row>
  readonly #before: Statement<[string, number], Row>
  readonly #all: Statement<[], Row>

  constructor({ database, name, columns }: ResourceTableOptions<Item>) {
    this.#database = database
    const properties = Object.keys(columns) as (keyof Item & string)[]
    this.#columns = properties.map((property) => {
      return { property, name: columnOf(property), form: columns[property] }
    })
    const names = this.#columns.map((column) => column.name)
    const values = names.map((column) => `@${column}`).join(', ')
    const changes = names.map((column) => `${column} = @${column}`).join(', ')
    const select = `SELECT ${names.join(', ')} FROM ${name}`
    this.#select = select
    this.#insert = database.prepare(`INSERT INTO ${name} (${names.join(', ')}) VALUES (${values})`)
    this.#replace = database.prepare(`UPDATE ${name} SET ${changes} WHERE id = @id`)
    this.#delete = database.prepare(`DELETE FROM ${name} WHERE id = ?`)
    this.#get = database.prepare(`${select} WHERE id = ?`)
    this.#newest = database.prepare(`${select} ORDER BY id DESC LIMIT ?`)
    this.#before = database.prepare(`${select} WHERE id < ? ORDER BY id DESC LIMIT ?`)
    this.#all = database.prepare(`${select} ORDER BY id`)
    const itemOf = (row: StoredRow | undefined) => row && this.#toItem(row as unknown as Row)
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

  /** Reports changes of all writers, after they are on stable storage. */
  onChange(listener: (change: ItemChange<Item>) => void): void {
    this.#listeners.push(listener)
  }

  /** Increases with every change, for caches. */
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
  protected getBy(column: string): (value: string) => Item | undefined {
    const statement = this.#database.prepare<[string], Row>(`${this.#select} WHERE ${column} = ?`)
    return (value) => {
      const row = statement.get(value)
      return row && this.#toItem(row)
    }
  }

  /** Reads the items with a value in a column, oldest first. */
  protected allBy(column: string): (value: string) => Item[] {
    const sql = `${this.#select} WHERE ${column} = ? ORDER BY id`
    const statement = this.#database.prepare<[string], Row>(sql)
    return (value) => statement.all(value).map((row) => this.#toItem(row))
  }

  /** Newest first. */
  page({ beforeId, limit }: PageRequest): Item[] {
    const rows = beforeId ? this.#before.all(beforeId, limit) : this.#newest.all(limit)
    return rows.map((row) => this.#toItem(row))
  }

  /** Oldest first. */
  all(): Item[] {
    return this.#all.all().map((row) => this.#toItem(row))
  }

  #toRow(item: Item): Row {
    const row: Row = {}
    for (const { property, name, form } of this.#columns) {
      const value = item[property]
      if (form === 'flag') row[name] = Number(value)
      else if (form === 'json') row[name] = value === null ? null : JSON.stringify(value)
      else row[name] = value as Value
    }
    return row
  }

  #toItem(row: Row): Item {
    const item: Partial<Record<keyof Item, unknown>> = {}
    for (const { property, name, form } of this.#columns) {
      const value = row[name]
      if (form === 'flag') item[property] = value === 1
      else if (form === 'json')
        item[property] = typeof value === 'string' ? JSON.parse(value) : null
      else item[property] = value
    }
    return item as Item
  }
}

function columnOf(property: string): string {
  const name = property.replace(/^is(?=[A-Z])/, '')
  return name.replace(/(?<=.)[A-Z]/g, (letter) => `_${letter}`).toLowerCase()
}
