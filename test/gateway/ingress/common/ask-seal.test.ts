import { describe, expect, it } from 'vitest'
import { AskSeal } from '../../../../src/gateway/ingress/common/ask-seal.ts'
import { ManualClock } from '../../../helpers/manual-clock.ts'

describe('AskSeal', () => {
  const clock = new ManualClock()
  const seal = new AskSeal(clock)

  it('reads the depth that it has sealed, under the name in any case', () => {
    for (const depth of [0, 1, 3, 12]) {
      expect(seal.depthOf(['accept', '*/*', 'X-Policy-Hops', seal.seal(depth)])).toBe(depth)
    }
    expect(seal.depthOf([])).toBe(0)
    expect(seal.depthOf(['x-other', seal.seal(3)])).toBe(0)
  })

  it('reads what another gateway of the site has sealed, whose clock is another', async () => {
    const key = Buffer.alloc(32, 1)
    const later = new ManualClock()
    await later.advance(3_600_000)
    const there = new AskSeal(clock, key)
    const here = new AskSeal(later, key)
    expect(here.depthOf(['x-policy-hops', there.seal(2)])).toBe(2)
    expect(there.depthOf(['x-policy-hops', here.seal(2)])).toBe(2)
  })

  it('takes the deepest of several', () => {
    const fields = ['x-policy-hops', seal.seal(1), 'x-policy-hops', seal.seal(2)]
    expect(seal.depthOf([...fields, 'x-policy-hops', '0'])).toBe(2)
  })

  it.each([
    ['a bare number', '3'],
    ['nothing', ''],
    ['another depth under the same seal', seal.seal(1).replace(/^1/, '3')],
    ['a later end under the same seal', seal.seal(1).replace(/\.\d+\./, '.999999999999.')],
    ['the seal of another process', new AskSeal(clock).seal(3)],
    ['a seal with more behind it', `${seal.seal(3)} `],
    ['a seal of another length', seal.seal(3).slice(0, -1)],
    ['a seal of letters that take two bytes', seal.seal(3).replace(/.{43}$/, 'é'.repeat(43))],
  ])('believes %s no word', (_what, value) => {
    expect(seal.depthOf(['x-policy-hops', value])).toBe(0)
  })

  it('forgets what no request can be under way for', async () => {
    const value = seal.seal(2)
    await clock.advance(86_399_000)
    expect(seal.depthOf(['x-policy-hops', value])).toBe(2)
    await clock.advance(2_000)
    expect(seal.depthOf(['x-policy-hops', value])).toBe(0)
  })
})
