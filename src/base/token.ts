import { createHash, randomBytes, timingSafeEqual } from 'node:crypto'

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
