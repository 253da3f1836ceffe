import { describe, expect, it } from 'vitest'
import type { Clock } from '../../../src/base/clock.ts'
import { FixedWindow } from '../../../src/base/limit/fixed-window.ts'
import type { Limiter } from '../../../src/base/limit/limiter.ts'
import { SlidingLog } from '../../../src/base/limit/sliding-log.ts'
import { TokenBuckets } from '../../../src/base/limit/token-buckets.ts'
import { RateLimiter } from '../../../src/policy/limit/rate-limiter.ts'
import { ManualClock } from '../../helpers/manual-clock.ts'

const CAPACITY = 3
const WINDOW = { capacity: CAPACITY, windowMs: 60_000 }

type Create = (clock: Clock) => Limiter

const FAMILY: readonly [name: string, create: Create][] = [
  ['SlidingLog', (clock) => new SlidingLog({ ...WINDOW, clock })],
  ['FixedWindow', (clock) => new FixedWindow({ ...WINDOW, maxKeys: 2, clock })],
  [
    'TokenBuckets',
    (clock) => new TokenBuckets({ capacity: CAPACITY, refillPerS: 0.05, maxKeys: 2, clock }),
  ],
  [
    'RateLimiter',
    (clock) => {
      const limiter = new RateLimiter({ ...WINDOW, clock })
      return { take: (key) => limiter.take(key, '192.0.2.1') }
    },
  ],
]

describe.each(FAMILY)('a limiter: %s', (_name, create) => {
  it('lets so many events of a key through, whatever others do', () => {
    const limiter = create(new ManualClock())
    for (let event = 0; event < CAPACITY; event += 1) expect(limiter.take('a')).toBe(0)
    expect(limiter.take('a')).toBeGreaterThan(0)
    expect(limiter.take('b')).toBe(0)
  })

  it('says in milliseconds when the next one fits, and refused ones do not put it off', async () => {
    const clock = new ManualClock()
    const limiter = create(clock)
    for (let event = 0; event < CAPACITY; event += 1) limiter.take('a')
    const waitMs = limiter.take('a')
    await clock.advance(waitMs - 1)
    expect(limiter.take('a')).toBe(1)
    await clock.advance(1)
    expect(limiter.take('a')).toBe(0)
  })
})

describe('FixedWindow', () => {
  it('refuses new keys while so many are counted', async () => {
    const clock = new ManualClock()
    const limiter = new FixedWindow({ ...WINDOW, maxKeys: 2, clock })
    expect(['a', 'b', 'c', 'b'].map((key) => limiter.take(key))).toEqual([0, 0, 60_000, 0])
    await clock.advance(60_000)
    expect(limiter.take('c')).toBe(0)
  })
})

describe('TokenBuckets', () => {
  it('fills up again to its capacity and no further', async () => {
    const clock = new ManualClock()
    const buckets = new TokenBuckets({ capacity: 2, refillPerS: 1, maxKeys: 9, clock })
    buckets.take('a')
    await clock.advance(3_600_000)
    expect([buckets.take('a'), buckets.take('a'), buckets.take('a')]).toEqual([0, 0, 1_000])
  })

  it('forgets the key that was used longest ago', () => {
    const clock = new ManualClock()
    const buckets = new TokenBuckets({ capacity: 1, refillPerS: 1, maxKeys: 2, clock })
    for (const key of ['a', 'b', 'a', 'c']) buckets.take(key)
    expect([buckets.take('a'), buckets.take('b')]).toEqual([1_000, 0])
  })
})
