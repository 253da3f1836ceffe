import { createHash, randomBytes, timingSafeEqual } from 'node:crypto'
import { inspect } from 'node:util'

/** A string that must not be printed: every way to show it gives `[secret]`. */
export class Secret {
  readonly #value: string

  constructor(value: string) {
    this.#value = value
  }

  /** The plain text. Call it where it is used, never earlier. */
  reveal(): string {
    return this.#value
  }

  /** `text` with each occurrence of the secret replaced: for messages made by others. */
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

/** SHA-256 of a token, hex. Enough for 256 random bits; a slow hash is for passwords. */
export function hashToken(token: string): string {
  return createHash('sha256').update(token).digest('hex')
}

/** 256 random bits, base64url, after a prefix that tells people what it opens. */
export function createToken(prefix: string): string {
  return `${prefix}${randomBytes(32).toString('base64url')}`
}

/** Compares a presented token with a stored hash in constant time. */
export function matchesHash(token: string, hash: string): boolean {
  return areEqualHashes(hashToken(token), hash)
}

/** Compares two hashes of tokens in constant time. */
export function areEqualHashes(presented: string, kept: string): boolean {
  const [a, b] = [Buffer.from(presented, 'hex'), Buffer.from(kept, 'hex')]
  return a.length === b.length && timingSafeEqual(a, b)
}
