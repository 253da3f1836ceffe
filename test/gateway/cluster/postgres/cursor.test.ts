import { expect, it, onTestFinished } from 'vitest'
import { Cursor } from '../../../../src/gateway/cluster/postgres/database-follower.ts'
import { turns } from '../../../helpers/frame-peer.ts'
import { ManualClock } from '../../../helpers/manual-clock.ts'

function cursorOf(poll: () => Promise<void> = async () => {}) {
  const clock = new ManualClock()
  const polls: number[] = []
  const cursor = new Cursor({
    poll: () => {
      polls.push(clock.monotonic())
      return poll()
    },
    pollMs: 1_000,
    clock,
  })
  onTestFinished(async () => {
    const stopped = cursor.stop()
    await turns()
    await stopped
  })
  cursor.start()
  const since = clock.monotonic()
  return { clock, cursor, times: () => polls.map((at) => at - since) }
}

it('polls at an interval without a notification', async () => {
  const { clock, times } = cursorOf()
  for (let n = 0; n < 307; n += 1) await clock.advance(10)
  expect(times()).toEqual([1_000, 2_020, 3_040])
})

it('polls at once when it is woken, and not more often than each 20 ms', async () => {
  const { clock, cursor, times } = cursorOf()
  for (let n = 0; n < 30; n += 1) {
    cursor.wake()
    await clock.advance(1)
  }
  expect(times()).toEqual([1, 21])
})

it('polls once more for what comes during a poll, and not beside it', async () => {
  let finish: () => void = () => {}
  const { clock, cursor, times } = cursorOf(() => new Promise((resolve) => (finish = resolve)))
  cursor.wake()
  await turns()
  for (let n = 0; n < 3; n += 1) {
    cursor.wake()
    await clock.advance(30)
  }
  expect(times()).toHaveLength(1)
  finish()
  await turns()
  await clock.advance(30)
  expect(times()).toHaveLength(2)
  finish()
})

it('stops after the poll that is under way', async () => {
  let finish: () => void = () => {}
  const { clock, cursor, times } = cursorOf(() => new Promise((resolve) => (finish = resolve)))
  cursor.wake()
  await turns()
  let isStopped = false
  const stopped = cursor.stop().then(() => {
    isStopped = true
  })
  await turns()
  expect([isStopped, cursor.signal.aborted, cursor.isRunning]).toEqual([false, true, false])
  finish()
  await stopped
  await clock.advance(5_000)
  expect(times()).toHaveLength(1)
})
