/**
 * Items in the order of a small whole number that each of them has, the least first; among equals in
 * the order in which they came to it. A bucket queue: to move an item costs the same however many
 * there are, because who moves one knows where it is.
 */
export class LeastFirst<Item> {
  /** By number; a hole where nobody has been. */
  readonly #buckets: Set<Item>[] = []

  add(item: Item, at: number): void {
    const bucket = this.#buckets[at]
    if (bucket) bucket.add(item)
    else this.#buckets[at] = new Set([item])
  }

  remove(item: Item, at: number): void {
    this.#buckets[at]?.delete(item)
  }

  move(item: Item, from: number, to: number): void {
    this.remove(item, from)
    this.add(item, to)
  }

  get first(): Item | undefined {
    for (const item of this) return item
    return undefined
  }

  *[Symbol.iterator](): Generator<Item> {
    for (const bucket of this.#buckets) if (bucket) yield* bucket
  }
}
