/** Longest head, in names and values, whose fields are kept with those that were appended. */
const MAX_KEPT = 96

/** What was appended last to the fields of heads that recur, and all fields then. */
const EXTENDED = new WeakMap<readonly string[], Extended>()

interface Extended {
  readonly tail: HeaderTail
  readonly all: readonly string[]
}

/** Fields, name and value in turn, that are appended to one head after the other. */
export class HeaderTail {
  readonly fields: readonly string[]

  constructor(fields: readonly string[]) {
    this.fields = fields
  }

  /**
   * All fields of a head that recurs: the same array if this tail was also the last one behind these fields. Only
   * one is kept, because a policy may choose another tail for each request.
   */
  after(fields: readonly string[]): readonly string[] {
    const known = EXTENDED.get(fields)
    if (known?.tail === this) return known.all
    const all = [...fields, ...this.fields]
    EXTENDED.set(fields, { tail: this, all })
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

  /** Appends fields that are the same for many heads. Short heads that recur then have the same array again. */
  extend(tail: HeaderTail): void {
    const isShort = this.#fields.length + tail.fields.length <= MAX_KEPT
    if (this.#recurs && isShort) this.#fields = tail.after(this.#fields)
    else this.#change().push(...tail.fields)
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
