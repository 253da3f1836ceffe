import { describe, expect, it } from 'vitest'
import type { Clock } from '../../src/base/clock.ts'
import { FailureLimiter, type Limiter, SlidingLog, TokenBuckets } from '../../src/base/limiter.ts'
import { FixedWindow } from '../../src/gateway/certificates/acme/dns-listener.ts'
import { RateLimiter } from '../../src/policy/limit/rate-limiter.ts'
import { ManualClock } from '../helpers/manual-clock.ts'

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
      return { tryCount: (key) => limiter.tryCount(key, '192.0.2.1') }
    },
  ],
]

describe.each(FAMILY)('a limiter: %s', (_name, create) => {
  it('lets so many events of a key through, whatever others do', () => {
    const limiter = create(new ManualClock())
    for (let event = 0; event < CAPACITY; event += 1) expect(limiter.tryCount('a')).toBe(0)
    expect(limiter.tryCount('a')).toBeGreaterThan(0)
    expect(limiter.tryCount('b')).toBe(0)
  })

  it('says in milliseconds when the next one fits, and refused ones do not put it off', async () => {
    const clock = new ManualClock()
    const limiter = create(clock)
    for (let event = 0; event < CAPACITY; event += 1) limiter.tryCount('a')
    const waitMs = limiter.tryCount('a')
    await clock.advance(waitMs - 1)
    expect(limiter.tryCount('a')).toBe(1)
    await clock.advance(1)
    expect(limiter.tryCount('a')).toBe(0)
  })
})

describe('FixedWindow', () => {
  it('refuses new keys while so many are counted', async () => {
    const clock = new ManualClock()
    const limiter = new FixedWindow({ ...WINDOW, maxKeys: 2, clock })
    expect(['a', 'b', 'c', 'b'].map((key) => limiter.tryCount(key))).toEqual([0, 0, 60_000, 0])
    await clock.advance(60_000)
    expect(limiter.tryCount('c')).toBe(0)
  })
})

describe('TokenBuckets', () => {
  it('fills up again to its capacity and no further', async () => {
    const clock = new ManualClock()
    const buckets = new TokenBuckets({ capacity: 2, refillPerS: 1, maxKeys: 9, clock })
    buckets.tryCount('a')
    await clock.advance(3_600_000)
    expect([buckets.tryCount('a'), buckets.tryCount('a'), buckets.tryCount('a')]).toEqual([
      0, 0, 1_000,
    ])
  })

  it('forgets the key that was used longest ago', () => {
    const clock = new ManualClock()
    const buckets = new TokenBuckets({ capacity: 1, refillPerS: 1, maxKeys: 2, clock })
    for (const key of ['a', 'b', 'a', 'c']) buckets.tryCount(key)
    expect([buckets.tryCount('a'), buckets.tryCount('b')]).toEqual([1_000, 0])
  })
})

describe('SlidingLog', () => {
  it('says how long to wait, per key, and lets in one for each that left the window', async () => {
    const clock = new ManualClock()
    const limit = new SlidingLog({ capacity: 2, windowMs: 60_000, clock })
    expect(limit.tryCount('a')).toBe(0)
    await clock.advance(20_000)
    expect(limit.tryCount('a')).toBe(0)
    expect(limit.tryCount('a')).toBe(40_000)
    expect(limit.tryCount('b')).toBe(0)
    await clock.advance(39_999)
    expect(limit.tryCount('a')).toBe(1)
    await clock.advance(1)
    expect(limit.tryCount('a')).toBe(0)
    expect(limit.tryCount('a')).toBe(20_000)
    await clock.advance(60_000)
    expect([limit.tryCount('a'), limit.tryCount('a')]).toEqual([0, 0])
  })
})

describe('FailureLimiter', () => {
  it('slows all clients down together when many of them fail', () => {
    const failures = new FailureLimiter(new ManualClock())
    const waits = Array.from({ length: 101 }, (_, n) => failures.tryCount(`client ${n}`))
    expect(waits.slice(0, 100).every((wait) => wait === 0)).toBe(true)
    expect(waits[100]).toBeGreaterThan(0)
  })

  it('lets as many through at three gateways as at one', () => {
    const counted = (gateways: number) => {
      const failures = new FailureLimiter(new ManualClock(), () => gateways)
      const waits = Array.from({ length: 20 }, () => failures.tryCount('192.0.2.1'))
      return waits.filter((wait) => wait === 0).length
    }
    expect([counted(1), counted(2), counted(3)]).toEqual([10, 5, 4])
  })

  it('does not let one client use up what all share', () => {
    const failures = new FailureLimiter(new ManualClock())
    for (let n = 0; n < 1_000; n += 1) failures.tryCount('loud')
    expect(failures.tryCount('quiet')).toBe(0)
  })

  it('forgets who failed longest ago beyond a thousand clients', async () => {
    const clock = new ManualClock()
    const failures = new FailureLimiter(clock)
    for (let n = 0; n < 10; n += 1) failures.tryCount('first')
    expect(failures.tryCount('first')).toBeGreaterThan(0)
    for (let n = 0; n < 1_000; n += 1) failures.tryCount(`client ${n}`)
    await clock.advance(1_000)
    expect(failures.tryCount('first')).toBe(0)
  })

  it('takes the /64 of an IPv6 address for one client, and IPv4 within IPv6 for itself', () => {
    const failures = new FailureLimiter(new ManualClock())
    for (let n = 0; n < 10; n += 1) failures.tryCount(`2001:db8::${n}`)
    for (let n = 0; n < 10; n += 1) failures.tryCount('::ffff:192.0.2.1')
    expect(failures.tryCount('2001:db8::ffff')).toBe(5_000)
    expect(failures.tryCount('192.0.2.1')).toBe(5_000)
    expect([failures.tryCount('2001:db8:0:1::'), failures.tryCount('192.0.2.2')]).toEqual([0, 0])
  })
})
