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
  const presented = Buffer.from(hashToken(token), 'hex')
  const stored = Buffer.from(hash, 'hex')
  return stored.length === presented.length && timingSafeEqual(presented, stored)
}
