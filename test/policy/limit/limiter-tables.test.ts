import { describe, expect, it } from 'vitest'
import { LimiterTables } from '../../../src/policy/limit/limiter-tables.ts'
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
