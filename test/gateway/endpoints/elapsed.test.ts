import { describe, expect, it } from 'vitest'
import { elapsedMs, type Moment, momentNow } from '../../../src/gateway/endpoints/kept-limits.ts'

const THEN: Moment = { at: 1_000_000, boot: 'a', upMs: 50_000 }

describe('elapsedMs', () => {
  it.each<[string, Partial<Moment>, number]>([
    ['by the uptime within one run of the machine', { at: 1_007_000, upMs: 57_000 }, 6_990],
    ['whatever its clock was set to', { at: 9_000_000, upMs: 57_000 }, 6_990],
    ['by the clock over a reboot', { at: 1_030_000, boot: 'b', upMs: 10 }, 30_000],
    ['by the clock where the uptime has begun anew', { at: 1_030_000, upMs: 10 }, 30_000],
    ['as nothing where the clock has gone back', { at: 5, boot: 'b', upMs: 90_000 }, 0],
    [
      'by the clock where nobody tells of a boot',
      { at: 1_030_000, boot: null, upMs: 90_000 },
      30_000,
    ],
  ])('counts %s', (_how, now, expected) => {
    expect(elapsedMs(THEN, { ...THEN, ...now })).toBe(expected)
  })

  it('is next to nothing between two looks at this machine', () => {
    const clock = { now: () => 1 }
    const moment = momentNow(clock)
    expect(moment.at).toBe(1)
    expect(moment.upMs).toBeGreaterThan(0)
    expect(elapsedMs(moment, momentNow(clock))).toBeLessThan(5_000)
  })
})
