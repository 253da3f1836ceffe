import { expect, it } from 'vitest'
import { AutoResetEvent } from '../../src/base/deferred.ts'
import { ManualClock } from '../helpers/manual-clock.ts'

it('wakes the one that waits', async () => {
  const event = new AutoResetEvent()
  const woken = event.wait()
  event.set()
  await woken
})

it('keeps a ring for the next wait, and only for that one', async () => {
  const clock = new ManualClock()
  const event = new AutoResetEvent()
  event.set()
  event.set()
  await event.wait()
  let isWoken = false
  const second = event.wait(clock, 100).then(() => {
    isWoken = true
  })
  await clock.advance(99)
  expect(isWoken).toBe(false)
  await clock.advance(1)
  await second
})

it('leaves no sleeper behind when it rings first', async () => {
  const clock = new ManualClock()
  const event = new AutoResetEvent()
  const woken = event.wait(clock, 60_000)
  expect(clock.sleeping).toBe(1)
  event.set()
  await woken
  expect(clock.sleeping).toBe(0)
})
