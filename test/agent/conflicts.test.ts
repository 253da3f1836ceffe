import { expect, it } from 'vitest'
import { Conflicts } from '../../src/agent/conflicts.ts'
import { AutoResetEvent } from '../../src/base/deferred.ts'
import { ManualClock } from '../helpers/manual-clock.ts'

const RETRY_MS = 5_000

function setUp({ random = (): number => 0 } = {}) {
  const clock = new ManualClock()
  const conflicts = new Conflicts({ timings: { conflictRetryMs: RETRY_MS }, random, clock })
  let woken = 0
  const wait = async (ms: number) => {
    await conflicts.wait(new AutoResetEvent(), ms)
    woken += 1
  }
  return { conflicts, clock, wait, woken: () => woken }
}

it('tries one name again within 8 s, and 150 names twice a second together', () => {
  const late = setUp({ random: () => 0.999 })
  expect(late.conflicts.pauseMs()).toBeLessThan(8_000)
  const { conflicts, wait } = setUp()
  for (let name = 0; name < 150; name += 1) void wait(Number.POSITIVE_INFINITY)
  expect(150 / (conflicts.pauseMs() / 1_000)).toBeCloseTo(2)
})

it('wakes the others when a name is free, and no more often than they try', async () => {
  const { conflicts, clock, wait, woken } = setUp()
  for (let name = 0; name < 3; name += 1) void wait(60_000)
  conflicts.freed()
  await clock.advance(0)
  expect(woken()).toBe(3)
  void wait(60_000)
  conflicts.freed()
  await clock.advance(0)
  expect(woken()).toBe(3)
  await clock.advance(RETRY_MS)
  conflicts.freed()
  await clock.advance(0)
  expect(woken()).toBe(4)
})

it('counts a name no longer when its turn has come', async () => {
  const { conflicts, clock, wait } = setUp()
  for (let name = 0; name < 100; name += 1) void wait(1_000)
  expect(conflicts.pauseMs()).toBe(50_000)
  await clock.advance(1_000)
  expect(conflicts.pauseMs()).toBe(RETRY_MS)
})
