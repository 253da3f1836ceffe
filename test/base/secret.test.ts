import { inspect } from 'node:util'
import { describe, expect, it } from 'vitest'
import { Secret } from '../../src/base/secret.ts'
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
