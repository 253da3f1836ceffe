import { createHash, randomBytes, timingSafeEqual } from 'node:crypto'
import { inspect } from 'node:util'

/** A string that must not be printed. All ways to print it give `[secret]`. */
export class Secret {
  readonly #value: string

  constructor(value: string) {
    this.#value = value
  }

  /** Returns the plain text. Call it only at the point of use. */
  reveal(): string {
    return this.#value
  }

  /** Replaces each occurrence of the secret in `text`, for messages written by other code. */
  scrub(text: string): string {
    return this.#value.length < 4 ? text : text.replaceAll(this.#value, '[secret]')
  }

  toString(): string {
    return '[secret]'
  }

  toJSON(): string {
    return '[secret]'
  }

  [inspect.custom](): string {
    return '[secret]'
  }
}

/** Returns the SHA-256 of a token in hex. Sufficient for 256 random bits: slow hashes are for passwords. */
export function hashToken(token: string): string {
  return createHash('sha256').update(token).digest('hex')
}

/** Creates a token: 256 random bits in base64url, after a prefix that shows its purpose. */
export function createToken(prefix: string): string {
  return `${prefix}${randomBytes(32).toString('base64url')}`
}

/** Compares a presented token with a stored hash in constant time. */
export function matchesHash(token: string, hash: string): boolean {
  return areEqualHashes(hashToken(token), hash)
}

/** Compares two token hashes in constant time. */
export function areEqualHashes(presented: string, kept: string): boolean {
  const [a, b] = [Buffer.from(presented, 'hex'), Buffer.from(kept, 'hex')]
  return a.length === b.length && timingSafeEqual(a, b)
}
