import fc from 'fast-check'
import { describe, expect, it } from 'vitest'
import type { LimiterDump } from '../../../src/policy/limit/rate-limiter.ts'
import { expectWithinCapacity, TimedLimiter, WINDOW_MS } from '../../helpers/timed-limiter.ts'

const ENOUGH = 10_000_000

/** Another limiter that goes on with the counts of the first; its clock starts elsewhere. */
function goOn(
  before: TimedLimiter,
  { capacity, now, elapsedMs }: { capacity: number; now: number; elapsedMs: number },
  maxBuckets = 100,
) {
  const dump = before.dump(ENOUGH) as LimiterDump
  const limiter = new TimedLimiter({ capacity, windowMs: WINDOW_MS, maxBuckets })
  const startedAt = 17.25
  limiter.setTime(startedAt)
  limiter.restore(dump, elapsedMs)
  const shift = now + elapsedMs - startedAt
  return { dump, admit: (key: string, time: number) => limiter.admit(key, time - shift) }
}

describe('the counts of a limiter in another process', () => {
  it('never let more through than the limit says, wherever the process changes', () => {
    const capacities = fc.constantFrom(1, 3, 8, 9, 60, 61, 150)
    const gaps = fc.array(fc.double({ min: 0, max: WINDOW_MS / 4, noNaN: true }), { maxLength: 80 })
    const burst = fc.integer({ min: 1, max: 60 })
    fc.assert(
      fc.property(
        capacities,
        gaps,
        gaps,
        burst,
        fc.nat(WINDOW_MS),
        (capacity, one, two, size, elapsedMs) => {
          const before = new TimedLimiter({ capacity, windowMs: WINDOW_MS })
          const admitted: number[] = []
          let now = 90_000.125
          const run = (gapsOf: number[], admit: (key: string, time: number) => number) => {
            for (const gap of gapsOf) {
              now += gap
              for (let n = 0; n < size; n += 1) if (admit('key', now) === 0) admitted.push(now)
            }
          }
          run([0, ...one], (key, time) => before.admit(key, time))
          const { admit } = goOn(before, { capacity, now, elapsedMs })
          now += elapsedMs
          run([0, ...two], admit)
          expectWithinCapacity(admitted, capacity)
        },
      ),
      { numRuns: 300 },
    )
  })

  it.each([1, 5, 8, 9, 60, 200])(
    'refuse as the one before would have, with a capacity of %i',
    (capacity) => {
      const before = new TimedLimiter({ capacity, windowMs: WINDOW_MS })
      for (let n = 0; n < capacity; n += 1) expect(before.admit('full', 100 + n)).toBe(0)
      before.admit('other', 1_000)
      const { admit } = goOn(before, { capacity, now: 1_000, elapsedMs: 30_000 })
      const waitMs = before.admit('full', 31_000)
      expect(waitMs).toBeGreaterThan(0)
      expect(Math.abs(admit('full', 31_000) - waitMs)).toBeLessThanOrEqual(1)
      expect(admit('new', 31_000)).toBe(0)
      expect(admit('full', 31_001 + waitMs)).toBe(0)
    },
  )

  it('go on for keys that shared their buckets, and for none that a window has passed', () => {
    const before = new TimedLimiter({ capacity: 1, windowMs: WINDOW_MS, maxBuckets: 4 })
    const keys = Array.from({ length: 40 }, (_, n) => `key ${n}`)
    const admitted = keys.filter((key, n) => before.admit(key, 0, `192.0.2.${n}`) === 0)
    expect(before.shared).toBeGreaterThan(0)
    const { admit } = goOn(before, { capacity: 1, now: 0, elapsedMs: 1_000 })
    expect(admitted.filter((key) => admit(key, 1_000) === 0)).toEqual([])
    const late = goOn(before, { capacity: 1, now: 0, elapsedMs: WINDOW_MS })
    expect(late.admit(admitted[0] ?? '', WINDOW_MS)).toBe(0)
  })

  it('are not written where they take more room than there is', () => {
    const before = new TimedLimiter({ capacity: 5, windowMs: WINDOW_MS })
    expect(before.dump(ENOUGH)).toBeUndefined()
    for (let n = 0; n < 100; n += 1) before.admit(`key ${n}`, n)
    const rows = before.dump(ENOUGH)?.rows[0]
    expect(rows?.byteLength).toBe(100 * 6 * 4)
    expect(before.dump(100 * 6 * 4)).toBeDefined()
    expect(before.dump(100 * 6 * 4 - 1)).toBeUndefined()
  })

  it.each<[string, number[]]>([
    ['cut off', [1, 2, 3, 2, 1, 500]],
    ['of a larger limit', [1, 2, 3, 4, 1, 4, 3, 2, 1]],
    ['without an admission', [1, 2, 3, 0, 1]],
    ['with a group that cannot be so full', [1, 2, 3, 1, 2, 5]],
    ['of the future', [1, 2, 3, 1, 1, -5_000]],
    ['in no order', [1, 2, 3, 2, 1, 5, 9]],
  ])('are refused when they are %s', (_what, row) => {
    const limiter = new TimedLimiter({ capacity: 3, windowMs: WINDOW_MS })
    const none = new Int32Array()
    const dump: LimiterDump = { key: Buffer.alloc(8), rows: [Int32Array.from(row), none, none] }
    expect(() => limiter.restore(dump, 0)).toThrow()
  })
})
