/** Four of the largest frames. */
export const SLAB_BYTES = 65_536
/** Slabs that nobody uses and that are kept: 8 MB. */
const MOST_SPARE = 128

/**
 * Memory in which frames are collected. Sessions that have one pool together take a slab each while they
 * write, and idle ones have none; the one that was used last is used next.
 */
export class SlabPool {
  readonly #spare: Buffer[] = []

  /** Slabs that are kept for whoever writes next. */
  get spare(): number {
    return this.#spare.length
  }

  take(): Buffer {
    return this.#spare.pop() ?? Buffer.allocUnsafeSlow(SLAB_BYTES)
  }

  /** Nobody may read or write it any more. */
  give(slab: Buffer): void {
    if (this.#spare.length < MOST_SPARE) this.#spare.push(slab)
  }
}
