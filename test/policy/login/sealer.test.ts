import { randomBytes } from 'node:crypto'
import fc from 'fast-check'
import { describe, expect, it } from 'vitest'
import { Sealer } from '../../../src/policy/login/login-flow.ts'

const key = Buffer.alloc(32, 7)

describe('Sealer', () => {
  it('opens what it has sealed, and says nothing of it', () => {
    const sealer = new Sealer(key)
    fc.assert(
      fc.property(fc.string({ unit: 'grapheme' }), (text) => {
        expect(sealer.open(sealer.seal(text, 'session'), 'session')).toBe(text)
      }),
    )
    expect(sealer.seal('same', 'session')).not.toBe(sealer.seal('same', 'session'))
  })

  it('opens nothing else', () => {
    const sealer = new Sealer(key)
    const sealed = sealer.seal('a session', 'session')
    expect(sealer.open(sealed, 'state')).toBeUndefined()
    expect(new Sealer(randomBytes(32)).open(sealed, 'session')).toBeUndefined()
    const bytes = Buffer.from(sealed, 'base64url')
    for (let at = 0; at < bytes.length; at += 1) {
      const changed = Buffer.from(bytes)
      changed[at] = (changed[at] ?? 0) ^ 1
      expect(sealer.open(changed.toString('base64url'), 'session'), `byte ${at}`).toBeUndefined()
      const cut = bytes.subarray(0, at).toString('base64url')
      expect(sealer.open(cut, 'session'), `${at} bytes`).toBeUndefined()
    }
    fc.assert(
      fc.property(fc.string(), (text) => {
        expect(sealer.open(text, 'session')).toBeUndefined()
      }),
    )
  })

  it('derives the same secret each time, another one for each label and key', () => {
    const secret = new Sealer(key).derive('nonce')
    expect(secret).toMatch(/^[\w-]{43}$/)
    expect(new Sealer(key).derive('nonce')).toBe(secret)
    expect(new Sealer(key).derive('verifier')).not.toBe(secret)
    expect(new Sealer(Buffer.alloc(32, 8)).derive('nonce')).not.toBe(secret)
  })
})
