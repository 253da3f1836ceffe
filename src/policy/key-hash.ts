import { randomBytes } from 'node:crypto'

/**
 * HalfSipHash-1-3 with 64 bits of output (the variant that Linux uses for hash tables), over the
 * UTF-16 code units of a string. Keyed, because clients choose what is hashed: without the key
 * nobody can aim at the bucket of somebody else.
 */
export class KeyHash {
  readonly #k0: number
  readonly #k1: number
  /** The two halves of the last hash, as unsigned 32-bit numbers. */
  low = 0
  high = 0

  /** `key` is eight bytes; random unless a test needs a known one. */
  constructor(key: Buffer = randomBytes(8)) {
    this.#k0 = key.readInt32LE(0)
    this.#k1 = key.readInt32LE(4)
  }

  /** Leaves the hash of `text` in `low` and `high`. */
  hash(text: string): void {
    let v0 = this.#k0
    let v1 = this.#k1 ^ 0xee
    let v2 = 0x6c796765 ^ this.#k0
    let v3 = 0x74656462 ^ this.#k1
    const { length } = text
    const blocks = length >> 1
    // The rounds are written out: a function call for each would double the cost.
    for (let block = 0; block <= blocks + 6; block += 1) {
      let word = 0
      if (block < blocks) {
        word = text.charCodeAt(2 * block) | (text.charCodeAt(2 * block + 1) << 16)
      } else if (block === blocks) {
        word = (length << 25) | (length & 1 ? text.charCodeAt(length - 1) : 0)
      } else if (block === blocks + 1) {
        v2 ^= 0xee
      } else if (block === blocks + 4) {
        this.low = (v1 ^ v3) >>> 0
        v1 ^= 0xdd
      }
      v3 ^= word
      v0 = (v0 + v1) | 0
      v1 = ((v1 << 5) | (v1 >>> 27)) ^ v0
      v0 = (v0 << 16) | (v0 >>> 16)
      v2 = (v2 + v3) | 0
      v3 = ((v3 << 8) | (v3 >>> 24)) ^ v2
      v0 = (v0 + v3) | 0
      v3 = ((v3 << 7) | (v3 >>> 25)) ^ v0
      v2 = (v2 + v1) | 0
      v1 = ((v1 << 13) | (v1 >>> 19)) ^ v2
      v2 = (v2 << 16) | (v2 >>> 16)
      v0 ^= word
    }
    this.high = (v1 ^ v3) >>> 0
  }
}
