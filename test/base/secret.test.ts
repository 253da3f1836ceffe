import { inspect } from 'node:util'
import { describe, expect, it } from 'vitest'
import { createToken, hashToken, matchesHash, Secret } from '../../src/base/secret.ts'
import { captureLog } from '../helpers/captured-log.ts'

const CANARY = 'canary-4f1c9a'

describe('Secret', () => {
  it('shows itself in no form of printing', () => {
    const secret = new Secret(CANARY)
    const { log, text } = captureLog()
    log.info({ secret, deep: { secret }, err: new Error(`bad ${secret}`) }, `with ${secret}`)
    const printed = [`${secret}`, JSON.stringify({ secret }), inspect({ secret }), text()]
    expect(printed.join()).not.toContain(CANARY)
    expect(secret.reveal()).toBe(CANARY)
  })

  it('removes itself from messages of others', () => {
    const message = `Your authtoken: ${CANARY}, again ${CANARY}`
    expect(new Secret(CANARY).scrub(message)).toBe('Your authtoken: [secret], again [secret]')
  })
})

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
