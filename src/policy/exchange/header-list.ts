/** Fields, name and value in turn, that are appended to one head after the other. */
export class HeaderTail {
  readonly fields: readonly string[]
  /** All fields of heads that recur. They are kept as long as the fields before the tail. */
  readonly #known = new WeakMap<readonly string[], readonly string[]>()

  constructor(fields: readonly string[]) {
    this.fields = fields
  }

  /** All fields of a head that recurs. */
  after(fields: readonly string[]): readonly string[] {
    const known = this.#known.get(fields)
    if (known) return known
    const all = [...fields, ...this.fields]
    this.#known.set(fields, all)
    return all
  }
}

/** The fields of a message head in the order and case in which they arrived; names match in any case. */
export class HeaderList {
  /** Name and value in turn. */
  #fields: readonly string[]
  /** The same array when it is a copy of this list, which may be changed. */
  #own: string[] | undefined
  #recurs: boolean

  /**
   * `[name, value, name, value, …]`, copied before the first change. `recurs`: other heads have the same array,
   * and nobody changes it.
   */
  constructor(fields: readonly string[] = [], recurs = false) {
    this.#fields = fields
    this.#recurs = recurs
  }

  /** Name and value in turn, as they go on the wire. */
  get fields(): readonly string[] {
    return this.#fields
  }

  /** Whether other heads have the same array of fields. */
  get recurs(): boolean {
    return this.#recurs
  }

  /** How many fields there are. */
  get size(): number {
    return this.#fields.length / 2
  }

  has(name: string): boolean {
    return this.#find(name, 0) !== -1
  }

  /** The first value with that name. */
  get(name: string): string | undefined {
    const at = this.#find(name, 0)
    return at === -1 ? undefined : this.#fields[at + 1]
  }

  /** Every value with that name, in order. */
  all(name: string): string[] {
    const values: string[] = []
    for (let at = this.#find(name, 0); at !== -1; at = this.#find(name, at + 2)) {
      values.push(this.#fields[at + 1] as string)
    }
    return values
  }

  append(name: string, value: string): void {
    this.#change().push(name, value)
  }

  /** Appends fields that are the same for many heads. Heads that recur then have the same array again. */
  extend(tail: HeaderTail): void {
    if (!this.#recurs) this.#change().push(...tail.fields)
    else this.#fields = tail.after(this.#fields)
  }

  #change(): string[] {
    if (!this.#own) {
      this.#own = [...this.#fields]
      this.#fields = this.#own
      this.#recurs = false
    }
    return this.#own
  }

  /** Gives the name exactly this value; the first field of that name keeps its place. */
  set(name: string, value: string): void {
    const at = this.#find(name, 0)
    if (at === -1) {
      this.append(name, value)
      return
    }
    this.#change()[at + 1] = value
    this.#removeFrom(name, at + 2)
  }

  /** Removes every field of that name; true when there was one. */
  remove(name: string): boolean {
    return this.#removeFrom(name, 0)
  }

  *[Symbol.iterator](): IterableIterator<[name: string, value: string]> {
    for (let at = 0; at < this.#fields.length; at += 2) {
      yield [this.#fields[at] as string, this.#fields[at + 1] as string]
    }
  }

  #find(name: string, from: number): number {
    const lower = name.toLowerCase()
    for (let at = from; at < this.#fields.length; at += 2) {
      const candidate = this.#fields[at] as string
      if (candidate.length !== lower.length) continue
      if (candidate === name || candidate.toLowerCase() === lower) return at
    }
    return -1
  }

  #removeFrom(name: string, from: number): boolean {
    let kept = this.#find(name, from)
    if (kept === -1) return false
    const fields = this.#change()
    let next = kept
    // Copies the parts between the matches in one pass: removing matches one by one would move the rest each
    // time.
    while (next !== -1) {
      const start = next + 2
      next = this.#find(name, start)
      const end = next === -1 ? fields.length : next
      fields.copyWithin(kept, start, end)
      kept += end - start
    }
    fields.length = kept
    return true
  }
}
