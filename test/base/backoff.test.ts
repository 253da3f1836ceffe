import { describe, expect, it } from 'vitest'
import { Backoff } from '../../src/base/backoff.ts'

describe('Backoff', () => {
  it('doubles the ceiling up to the cap', () => {
    const backoff = new Backoff({ baseMs: 500, capMs: 3_000, random: () => 0 })
    expect([1, 2, 3, 4, 5].map(() => backoff.next())).toEqual([500, 1_000, 2_000, 3_000, 3_000])
  })

  it('spreads delays over the whole range and never answers zero', () => {
    const shortest = new Backoff({ baseMs: 500, capMs: 3_000, random: () => 0.999_999 })
    expect(shortest.next()).toBe(1)
  })

  it('lets chance take off no more than its jitter', () => {
    const backoff = new Backoff({
      baseMs: 500,
      capMs: 3_000,
      jitter: 0.25,
      random: () => 0.999_999,
    })
    expect([backoff.next(), backoff.next()]).toEqual([376, 751])
  })

  it('starts again after a reset', () => {
    const backoff = new Backoff({ baseMs: 500, capMs: 3_000, random: () => 0 })
    backoff.next()
    backoff.next()
    backoff.reset()
    expect([backoff.attempts, backoff.next()]).toEqual([0, 500])
  })

  it('stays at the cap after thousands of attempts', () => {
    const backoff = new Backoff({ baseMs: 500, capMs: 10_000, random: () => 0 })
    for (let attempt = 0; attempt < 5_000; attempt += 1) backoff.next()
    expect(backoff.next()).toBe(10_000)
  })
})
