import { describe, expect, it } from 'vitest'
import {
  awaitedIn,
  DRAINED,
  drainNotice,
  duplicateIn,
} from '../../../src/agent/sessions/gateway-notice.ts'

describe('drainNotice', () => {
  it('says how long the gateway may wait', () => {
    expect(JSON.parse(drainNotice(10_000))).toEqual({
      'device-agent': { drain: { within_ms: 10_000 } },
    })
  })

  it.each([
    ['drain:0', true],
    ['drain:12', true],
    ['https://drain.device-agent.internal', false],
    ['drain:', false],
  ])('is answered by %s: %s', (url, isAnswer) => {
    expect(DRAINED.test(url)).toBe(isAnswer)
  })
})

describe('awaitedIn', () => {
  it('finds names, and none in what is no notice of them', () => {
    const notice = (awaited: unknown) => JSON.stringify({ 'device-agent': { awaited } })
    expect(awaitedIn(notice(['b.site.test', 'a.site.test']))).toEqual([
      'b.site.test',
      'a.site.test',
    ])
    for (const text of ['3.4.0', notice([1]), notice('a.site.test'), notice(undefined)]) {
      expect(awaitedIn(text)).toEqual([])
    }
  })
})

describe('duplicateIn', () => {
  it('finds where the other device is, beside notices of other kinds', () => {
    const notice = { 'device-agent': { duplicate: { ip: '10.0.0.3' }, later: 1 } }
    expect(duplicateIn(JSON.stringify(notice))).toBe('10.0.0.3')
  })

  it.each([
    ['a version', '3.4.0'],
    ['nothing', ''],
    ['another notice', '{"device-agent":{"outcomes":{}}}'],
    ['somebody else', '{"duplicate":{"ip":"10.0.0.3"}}'],
    ['no address', '{"device-agent":{"duplicate":{"ip":3}}}'],
    ['no object', '{"device-agent":null}'],
    [
      'too long an address',
      JSON.stringify({ 'device-agent': { duplicate: { ip: 'x'.repeat(65) } } }),
    ],
    ['too much', `${' '.repeat(4_096)}{"device-agent":{"duplicate":{"ip":"10.0.0.3"}}}`],
  ])('finds nobody in %s', (_what, version) => {
    expect(duplicateIn(version)).toBeUndefined()
  })
})
