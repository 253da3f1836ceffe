import { describe, expect, it } from 'vitest'
import { LimiterTables } from '../../../src/policy/limit/limiter-tables.ts'
import { RateLimiter } from '../../../src/policy/limit/rate-limiter.ts'
import { captureLog } from '../../helpers/captured-log.ts'
import { ManualClock } from '../../helpers/manual-clock.ts'

const where = { endpoint: 'ep_1', limit: 'clients', client: '203.0.113.9' }

describe('LimiterTables', () => {
  it('has room for 100,000 keys in each table unless it is told', () => {
    const parts = { clock: new ManualClock(), log: captureLog().log }
    expect(new LimiterTables(parts).maxKeys).toBe(100_000)
    expect(new LimiterTables({ ...parts, maxKeys: 5_000 }).maxKeys).toBe(5_000)
  })

  it('counts decisions without a bucket, and those that refused', () => {
    const tables = new LimiterTables({ clock: new ManualClock(), log: captureLog().log })
    expect([tables.shared, tables.sharedRefused]).toEqual([0, 0])
    for (const isRefused of [true, false, true, false, false]) {
      tables.count({ ...where, isRefused })
    }
    expect([tables.shared, tables.sharedRefused]).toEqual([5, 2])
  })

  it('tells the log at once, and then once a minute at most', async () => {
    const captured = captureLog()
    const clock = new ManualClock()
    const tables = new LimiterTables({ maxKeys: 5_000, clock, log: captured.log })
    const flood = () => {
      for (let call = 0; call < 100; call += 1) tables.count({ ...where, isRefused: call > 9 })
    }
    flood()
    await clock.advance(59_999)
    flood()
    expect(captured.lines).toMatchObject([
      { level: 'warn', ...where, maxKeys: 5_000, shared: 1, sharedRefused: 0 },
    ])
    await clock.advance(1)
    flood()
    expect(captured.lines).toHaveLength(2)
    expect(captured.lines[1]).toMatchObject({ shared: 201, sharedRefused: 180 })
    expect(captured.lines[1]?.msg).toContain('GATEWAY_RATE_LIMIT_KEYS')
  })
})

describe('the memory of all limits', () => {
  const KEYS = 10_000
  const BYTES = 4 * 280 * KEYS
  const parts = () => ({ clock: new ManualClock(), log: captureLog().log, maxKeys: KEYS })

  it('is that of four full tables; above it nobody takes more who has more than its part', async () => {
    const options = parts()
    const tables = new LimiterTables(options)
    const [greedy, other] = [{ bytes: 0 }, { bytes: 0 }]
    for (const limiter of [greedy, other]) tables.add(limiter)
    greedy.bytes = BYTES - 1
    expect(tables.isFullFor(greedy)).toBe(false)
    greedy.bytes = BYTES
    await options.clock.advance(1_000)
    expect(tables.isFullFor(greedy)).toBe(true)
    other.bytes = BYTES / 2
    expect(tables.isFullFor(other)).toBe(false)
    other.bytes += 1
    expect(tables.isFullFor(other)).toBe(true)
  })

  it('is bounded for a policy with very many limits, and a calm one counts each key apart', async () => {
    const options = parts()
    const tables = new LimiterTables(options)
    const create = () =>
      new RateLimiter({
        capacity: 5,
        windowMs: 3_600_000,
        maxBuckets: KEYS,
        clock: options.clock,
        tables,
      })
    const many = Array.from({ length: 100 }, create)
    const calm = create()
    for (let key = 0; key < KEYS; key += 1) {
      const address = `198.51.${key >> 8}.${key & 255}`
      for (const limiter of many) limiter.tryCount(`key ${key}`, address)
      if (key % 100 === 0) await options.clock.advance(1_000)
    }
    const bytes = many.reduce((sum, limiter) => sum + limiter.bytes, 0)
    // Their parts, and the buckets that are shared, come on top.
    expect(bytes).toBeLessThan(3.5 * BYTES)
    calm.tryCount('mine', '203.0.113.1')
    expect([calm.buckets, calm.shared]).toEqual([1, 0])
  })
})
