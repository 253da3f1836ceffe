import { describe, expect, it } from 'vitest'
import { createDeferred } from '../../../src/base/deferred.ts'
import { FreshReader } from '../../../src/gateway/cluster/site-orders.ts'
import { eventually } from '../../helpers/eventually.ts'
import { ManualClock } from '../../helpers/manual-clock.ts'

describe('a fresh reader', () => {
  it('gives what was read after it was asked, and reads once for all who wait', async () => {
    const clock = new ManualClock()
    const first = createDeferred<void>()
    let reads = 0
    const reader = new FreshReader({
      read: async () => {
        const mine = ++reads
        if (mine === 1) await first.promise
        return mine
      },
      clock,
    })
    const early = reader.read()
    await Promise.resolve()
    const late = [reader.read(), reader.read()]
    first.resolve()
    expect(await early).toBe(1)
    await eventually(() => expect(clock.sleeping).toBe(1))
    await clock.advance(20)
    expect(await Promise.all(late)).toEqual([2, 2])
    expect(reads).toBe(2)
  })

  it('reads again after a failure, which all who waited for it hear of', async () => {
    const clock = new ManualClock()
    let isAway = true
    const read = async () => {
      if (isAway) throw new Error('away')
      return 'there'
    }
    const reader = new FreshReader({ read, clock })
    await expect(Promise.all([reader.read(), reader.read()])).rejects.toThrow('away')
    isAway = false
    await eventually(() => expect(clock.sleeping).toBe(1))
    await clock.advance(20)
    expect(await reader.read()).toBe('there')
  })
})
