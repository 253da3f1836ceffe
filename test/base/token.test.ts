import { describe, expect, it } from 'vitest'
import { createToken, hashToken, matchesHash } from '../../src/base/token.ts'

describe('tokens', () => {
  it('match their own hash and no other', () => {
    const token = createToken('dagt_')
    expect(matchesHash(token, hashToken(token))).toBe(true)
    expect(matchesHash(`${token}x`, hashToken(token))).toBe(false)
    expect(matchesHash(token, 'not-a-hash')).toBe(false)
  })

  it('carry their prefix and 256 random bits', () => {
    expect(createToken('dagt_')).toMatch(/^dagt_[A-Za-z0-9_-]{43}$/)
    expect(createToken('dagt_')).not.toBe(createToken('dagt_'))
  })
})
