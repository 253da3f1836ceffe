import { describe, expect, it } from 'vitest'
import { KNOWN_FIELDS, knownField } from '../../../../src/gateway/ingress/syntax/message-fields.ts'

describe('knownField', () => {
  it.each(KNOWN_FIELDS)('knows %s in any case', (name) => {
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
