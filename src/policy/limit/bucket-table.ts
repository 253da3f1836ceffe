import { type BucketMemory, SlidingWindow, SPARE_WORD } from './sliding-window.ts'

/** Buckets per page; the first page starts small, because most limiters see few clients. */
const PAGE_BITS = 12
const PAGE_BUCKETS = 1 << PAGE_BITS
const FIRST_BUCKETS = 16
const FIRST_INDEX = 32
/** The hash of its key stands in front of a bucket's own words. */
const HASH_WORDS = 2

interface Page extends BucketMemory {
  readonly buckets: number
}

/**
 * Buckets by 64-bit hash: rows without gaps in pages of typed arrays, and an open-addressing index
 * of row numbers. A million buckets are a few hundred objects to the garbage collector.
 * Row numbers are valid until the next `remove()`, which moves the last row into the gap.
 */
export class BucketTable {
  readonly #stride: number
  #pages: Page[] = []
  /** Row number + 1, 0 where nothing is; linear probing. */
  #index = new Uint32Array(FIRST_INDEX)
  #size = 0

  /** `words` of 32 bits per bucket, an even number. */
  constructor(words: number) {
    this.#stride = HASH_WORDS + words
  }

  get size(): number {
    return this.#size
  }

  /** Bytes held for buckets and index. */
  get bytes(): number {
    return this.#pages.reduce((sum, page) => sum + page.words.byteLength, this.#index.byteLength)
  }

  /** The row of a hash, or -1. */
  find(low: number, high: number): number {
    const mask = this.#index.length - 1
    for (let slot = low & mask; ; slot = (slot + 1) & mask) {
      const row = (this.#index[slot] as number) - 1
      if (row === -1) return -1
      const { words } = this.page(row)
      const at = this.offset(row)
      if (words[at - 2] === low && words[at - 1] === high) return row
    }
  }

  /** A new row of zeros for a hash that is not there yet. */
  insert(low: number, high: number): number {
    const row = this.#size
    this.#reserve(row)
    // Linear probing stays short up to three quarters.
    if (row * 4 >= this.#index.length * 3) this.#reindex(this.#index.length * 2)
    this.#size += 1
    const { words } = this.page(row)
    const at = this.offset(row)
    words[at - 2] = low
    words[at - 1] = high
    this.#enter(row)
    return row
  }

  remove(row: number): void {
    this.#removeFromIndex(row)
    const last = this.#size - 1
    const from = this.page(last)
    const start = this.offset(last) - HASH_WORDS
    if (row !== last) {
      this.#index[this.#slotOf(last)] = row + 1
      const moved = from.words.subarray(start, start + this.#stride)
      this.page(row).words.set(moved, this.offset(row) - HASH_WORDS)
    }
    from.words.fill(0, start, start + this.#stride)
    this.#size = last
    this.#release()
  }

  /** Removes everything and frees the memory. */
  clear(): void {
    this.#pages = []
    this.#index = new Uint32Array(FIRST_INDEX)
    this.#size = 0
  }

  /** The memory in which a row stands. */
  page(row: number): BucketMemory {
    return this.#pages[row >>> PAGE_BITS] as Page
  }

  /** Position of a row's own words in its page. */
  offset(row: number): number {
    return (row & (PAGE_BUCKETS - 1)) * this.#stride + HASH_WORDS
  }

  #slotOf(row: number): number {
    const mask = this.#index.length - 1
    let slot = (this.page(row).words[this.offset(row) - 2] as number) & mask
    while (this.#index[slot] !== row + 1) slot = (slot + 1) & mask
    return slot
  }

  #enter(row: number): void {
    const mask = this.#index.length - 1
    let slot = (this.page(row).words[this.offset(row) - 2] as number) & mask
    while (this.#index[slot] !== 0) slot = (slot + 1) & mask
    this.#index[slot] = row + 1
  }

  /** Takes a row out of the index and closes the gap, so that probing needs no tombstones. */
  #removeFromIndex(row: number): void {
    const index = this.#index
    const mask = index.length - 1
    let gap = this.#slotOf(row)
    for (let slot = (gap + 1) & mask; index[slot] !== 0; slot = (slot + 1) & mask) {
      const other = (index[slot] as number) - 1
      const home = (this.page(other).words[this.offset(other) - 2] as number) & mask
      if (((slot - home) & mask) >= ((slot - gap) & mask)) {
        index[gap] = other + 1
        gap = slot
      }
    }
    index[gap] = 0
  }

  #reindex(length: number): void {
    this.#index = new Uint32Array(length)
    for (let row = 0; row < this.#size; row += 1) this.#enter(row)
  }

  #reserve(row: number): void {
    const number = row >>> PAGE_BITS
    const page = this.#pages[number]
    const wanted = row & (PAGE_BUCKETS - 1)
    if (page && wanted < page.buckets) return
    if (number > 0) {
      this.#pages[number] = this.#createPage(PAGE_BUCKETS)
      return
    }
    const larger = this.#createPage(page ? page.buckets * 2 : FIRST_BUCKETS)
    if (page) larger.words.set(page.words)
    this.#pages[0] = larger
  }

  #createPage(buckets: number): Page {
    const memory = new ArrayBuffer(buckets * this.#stride * 4)
    return { buckets, words: new Int32Array(memory), doubles: new Float64Array(memory) }
  }

  /** Gives a page back once a whole further one stands empty: no to and fro at the border. */
  #release(): void {
    const used = Math.ceil(this.#size / PAGE_BUCKETS)
    if (this.#pages.length > used + 1) {
      this.#pages.length = used + 1
      if (this.#size * 8 < this.#index.length) this.#reindex(this.#index.length / 2)
    }
  }
}

/** Word of a bucket with its owner. The window does not use it. */
const OWNER = SPARE_WORD

/** Buckets of one size, and where the sweep stands among them. */
export interface Tier {
  readonly window: SlidingWindow
  readonly table: BucketTable
  sweepAt: number
  sweepDue: number
}

export function createTier(capacity: number, windowMs: number): Tier {
  const window = new SlidingWindow(capacity, windowMs)
  return { window, table: new BucketTable(window.words), sweepAt: 0, sweepDue: 0 }
}

export function admitTo({ window, table }: Tier, row: number, now: number): number {
  return window.admit(table.page(row), table.offset(row), now)
}

export function ownerOf({ table }: Tier, row: number): number {
  return table.page(row).words[table.offset(row) + OWNER] as number
}

export function setOwner({ table }: Tier, row: number, owner: number): void {
  table.page(row).words[table.offset(row) + OWNER] = owner
}
