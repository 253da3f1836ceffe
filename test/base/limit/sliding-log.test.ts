import { describe, expect, it } from 'vitest'
import { SlidingLog } from '../../../src/base/limit/sliding-log.ts'
import { ManualClock } from '../../helpers/manual-clock.ts'

describe('SlidingLog', () => {
  it('says how long to wait, per key, and lets in one for each that left the window', async () => {
    const clock = new ManualClock()
    const limit = new SlidingLog({ capacity: 2, windowMs: 60_000, clock })
    expect(limit.take('a')).toBe(0)
    await clock.advance(20_000)
    expect(limit.take('a')).toBe(0)
    expect(limit.take('a')).toBe(40_000)
    expect(limit.take('b')).toBe(0)
    await clock.advance(39_999)
    expect(limit.take('a')).toBe(1)
    await clock.advance(1)
    expect(limit.take('a')).toBe(0)
    expect(limit.take('a')).toBe(20_000)
    await clock.advance(60_000)
    expect([limit.take('a'), limit.take('a')]).toEqual([0, 0])
  })
})
