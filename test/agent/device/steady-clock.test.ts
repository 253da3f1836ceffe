import { describe, expect, it } from 'vitest'
import { SteadyClock, withShownTimes } from '../../../src/agent/device/steady-clock.ts'
import { ManualClock } from '../../helpers/manual-clock.ts'

const DAY = 86_400_000

describe('SteadyClock', () => {
  it.each([2_000, -2_000, 3_600_000, -3_600_000, 400 * DAY, -11_000 * DAY])(
    'notices that the clock was set by %i ms, once',
    async (jumpMs) => {
      const clock = new ManualClock()
      const steady = new SteadyClock(clock)
      const { shown } = { shown: (at: number) => steady.shown(at) }
      const at = steady.now()
      await clock.advance(2_000)
      expect(steady.readChange()).toBe(0)
      clock.stepWall(jumpMs)
      await clock.advance(2_000)
      expect(steady.now() - at).toBe(4_000)
      expect(steady.readChange()).toBe(jumpMs)
      expect(steady.readChange()).toBe(0)
      expect(clock.now() - shown(at)).toBe(4_000)
    },
  )

  it('does not take a small correction for a jump, and shows the same instant as before', () => {
    const clock = new ManualClock()
    const steady = new SteadyClock(clock)
    const at = steady.now()
    clock.stepWall(900)
    expect(steady.readChange()).toBe(0)
    expect(steady.shown(at)).toBe(at)
  })

  it('adds small corrections up', () => {
    const clock = new ManualClock()
    const steady = new SteadyClock(clock)
    clock.stepWall(900)
    steady.readChange()
    clock.stepWall(900)
    expect(steady.readChange()).toBe(1_800)
  })

  it('makes the instants of a status when it is shown, and nothing else', () => {
    const clock = new ManualClock()
    const steady = new SteadyClock(clock)
    clock.stepWall(DAY)
    const status = {
      since: 5,
      nextRetryAt: undefined,
      lastProbeAt: 7,
      latencyMs: 9,
      duplicate: { seenAt: 3 },
    }
    expect(withShownTimes(status, steady)).toEqual({
      since: 5 + DAY,
      nextRetryAt: undefined,
      lastProbeAt: 7 + DAY,
      latencyMs: 9,
      duplicate: { seenAt: 3 + DAY },
    })
  })
  it('copies no status while nobody has set the clock', () => {
    const steady = new SteadyClock(new ManualClock())
    const status = { since: 5 }
    expect(withShownTimes(status, steady)).toBe(status)
  })
})
