import { describe, expect, it } from 'vitest'
import { eventOf, visitorReportsIn } from '../../../src/agent/upstreams/upstream-state.ts'

const REPORT = {
  host: 'a.test',
  state: 'garbage',
  answered: 1,
  abandoned: 2,
  failed: 3,
  oldest_wait_ms: 4,
}
const notice = (...visitors: object[]) => JSON.stringify({ 'device-agent': { visitors } })

describe('visitorReportsIn', () => {
  it('reads what our gateway says, by host', () => {
    const [[host, report] = []] = visitorReportsIn(notice(REPORT))
    expect([host, report]).toEqual([
      'a.test',
      { state: 'garbage', answered: 1, abandoned: 2, failed: 3, oldestWaitMs: 4 },
    ])
    expect(report && eventOf(report)).toBe('garbled')
  })

  it.each([
    ['an update', '3.9.1'],
    ['another notice', '{"device-agent":{"duplicate":{"ip":"10.0.0.1"}}}'],
    ['somebody else', '{"visitors":[]}'],
    ['another state', notice({ ...REPORT, state: 'fine' })],
    ['no number', notice({ ...REPORT, failed: '3' })],
    ['too much', notice(...Array.from({ length: 60 }, () => REPORT))],
  ])('takes nothing from %s', (_what, text) => {
    expect(visitorReportsIn(text).size).toBe(0)
  })
})
