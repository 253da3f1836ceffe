import { randomBytes } from 'node:crypto'

/** The constant of the specification, and a different constant for texts that had to be encoded first. */
const FINAL = 0xee
const FINAL_ENCODED = 0xef

/**
 * HalfSipHash-1-3 with 64 bits of output (the variant of Linux hash tables), over the bytes of a Latin-1
 * text. It is keyed, because clients choose the input: without the key, a client cannot aim at the bucket of
 * another client.
 */
export class KeyHash {
  readonly #k0: number
  readonly #k1: number
  /** Secret: with it, a client can aim at buckets. */
  readonly key: Buffer
  /** Halves of the last hash, as signed 32-bit numbers, which the engine does not allocate as objects. */
  low = 0
  high = 0

  /** `key` is eight bytes; random unless a test needs a known one. */
  constructor(key: Buffer = randomBytes(8)) {
    this.key = key
    this.#k0 = key.readInt32LE(0)
    this.#k1 = key.readInt32LE(4)
  }

  /** Leaves the hash of `text` in `low` and `high`. */
  hash(text: string): void {
    const highest = this.#run(text, FINAL)
    // Other scripts are rare in keys: they are hashed as UTF-8, and never like a Latin-1 text.
    if (highest > 0xff) this.#run(Buffer.from(text).toString('latin1'), FINAL_ENCODED)
  }

  /** Answers the bits of all characters. The rounds are written out: calls would double the cost. */
  #run(text: string, final: number): number {
    let v0 = this.#k0
    let v1 = this.#k1 ^ 0xee
    let v2 = 0x6c796765 ^ this.#k0
    let v3 = 0x74656462 ^ this.#k1
    let bits = 0
    let at = 0
    for (; at + 4 <= text.length; at += 4) {
      const first = text.charCodeAt(at)
      const second = text.charCodeAt(at + 1)
      const third = text.charCodeAt(at + 2)
      const fourth = text.charCodeAt(at + 3)
      bits |= first | second | third | fourth
      const word = first ^ (second << 8) ^ (third << 16) ^ (fourth << 24)
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
    let last = text.length << 24
    for (let shift = 0; at < text.length; at += 1, shift += 8) {
      bits |= text.charCodeAt(at)
      last ^= text.charCodeAt(at) << shift
    }
    // One round for the last word, three for each half of the output.
    for (let round = 0; round < 7; round += 1) {
      if (round === 1) {
        v2 ^= final
      } else if (round === 4) {
        this.low = v1 ^ v3
        v1 ^= 0xdd
      }
      const word = round === 0 ? last : 0
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
    this.high = v1 ^ v3
    return bits
  }
}
