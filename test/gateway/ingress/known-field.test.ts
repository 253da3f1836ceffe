import { describe, expect, it } from 'vitest'
import { knownField } from '../../../src/gateway/ingress/known-field.ts'

const KNOWN = [
  'te',
  'host',
  'expect',
  'upgrade',
  'connection',
  'keep-alive',
  'content-length',
  'http2-settings',
  'x-forwarded-for',
  'ngrok-error-code',
  'proxy-connection',
  'x-forwarded-host',
  'transfer-encoding',
  'x-forwarded-proto',
]

describe('knownField', () => {
  it.each(KNOWN)('knows %s in any case', (name) => {
    expect(knownField(name)).toBe(name)
    expect(knownField(name.toUpperCase())).toBe(name)
    expect(knownField(name.replace(/^./, (letter) => letter.toUpperCase()))).toBe(name)
  })

  it.each(['', 'h', 'hosts', 'hort', 'accept', 'cookie', 'user-agent', 'content-lengtH '])(
    'does not know %j',
    (name) => {
      expect(knownField(name)).toBeUndefined()
    },
  )
})
