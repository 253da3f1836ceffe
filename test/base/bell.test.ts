import { expect, it } from 'vitest'
import { Bell } from '../../src/base/bell.ts'
import { ManualClock } from '../helpers/manual-clock.ts'

it('wakes the one that waits', async () => {
  const bell = new Bell()
  const woken = bell.wait()
  bell.ring()
  await woken
})

it('keeps a ring for the next wait, and only for that one', async () => {
  const clock = new ManualClock()
  const bell = new Bell()
  bell.ring()
  bell.ring()
  await bell.wait()
  let isWoken = false
  const second = bell.wait(clock, 100).then(() => {
    isWoken = true
  })
  await clock.advance(99)
  expect(isWoken).toBe(false)
  await clock.advance(1)
  await second
})

it('leaves no sleeper behind when it rings first', async () => {
  const clock = new ManualClock()
  const bell = new Bell()
  const woken = bell.wait(clock, 60_000)
  expect(clock.sleeping).toBe(1)
  bell.ring()
  await woken
  expect(clock.sleeping).toBe(0)
})
