import { expect, it } from 'vitest'
import {
  createJoinToken,
  opens,
  parseJoinToken,
} from '../../../../src/gateway/cluster/peers/join-token.ts'

it('is kept as a hash, and read back from its text', () => {
  const { token, kept } = createJoinToken('ab'.repeat(32), 5)
  const parsed = parseJoinToken(` ${token.reveal()}\n`)
  if (!parsed) throw new Error('it is no token')
  expect(parsed).toMatchObject({ id: kept.id, fingerprint: 'ab'.repeat(32) })
  expect(JSON.stringify(kept)).not.toContain(parsed.secret)
  expect(`${token}`).toBe('[secret]')
  expect(opens(parsed, kept)).toBe(true)
  expect(opens({ secret: 'x'.repeat(43) }, kept)).toBe(false)
  expect(parseJoinToken('join_1_2_3')).toBeUndefined()
})
