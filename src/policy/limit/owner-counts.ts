const ROW_BITS = 12
const ROW_CELLS = 1 << ROW_BITS
const ROW_MASK = ROW_CELLS - 1

/**
 * How many buckets each owner has, in 32 kB for any number of owners: two rows of counters, of
 * which an owner has one each (a count-min sketch). Never too low; too high for who shares both
 * counters with others, one owner in 16 million for each of them.
 */
export class OwnerCounts {
  readonly #cells = new Uint32Array(2 * ROW_CELLS)

  get bytes(): number {
    return this.#cells.byteLength
  }

  /** `owner` is 32 bits of a hash; `by` is 1 or -1. */
  change(owner: number, by: number): void {
    for (const cell of [firstCell(owner), secondCell(owner)]) {
      this.#cells[cell] = (this.#cells[cell] as number) + by
    }
  }

  of(owner: number): number {
    const first = this.#cells[firstCell(owner)] as number
    const second = this.#cells[secondCell(owner)] as number
    return Math.min(first, second)
  }
}

const firstCell = (owner: number) => owner & ROW_MASK
const secondCell = (owner: number) => ROW_CELLS + ((owner >>> ROW_BITS) & ROW_MASK)
