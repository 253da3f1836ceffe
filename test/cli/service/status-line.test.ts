import { expect, it, onTestFinished } from 'vitest'
import { StatusLine } from '../../../src/cli/service/supervision.ts'
import { ManualClock } from '../../helpers/manual-clock.ts'

function setUp() {
  const clock = new ManualClock()
  const told: string[] = []
  const listeners = new Set<() => void>()
  const startedAt = clock.now()
  const line = new StatusLine({
    sentence: () => `down for ${Math.floor((clock.now() - startedAt) / 1_000)} s`,
    onChange: (listener) => {
      listeners.add(listener)
      return () => listeners.delete(listener)
    },
    tell: (sentence) => told.push(sentence),
    clock,
  })
  onTestFinished(() => line.stop())
  line.start()
  const change = () => {
    for (const listener of listeners) listener()
  }
  return { clock, told, line, change, listeners }
}

it('tells many changes at once', async () => {
  const { clock, told, change } = setUp()
  await clock.advance(3_000)
  for (let n = 0; n < 100; n += 1) change()
  await clock.advance(0)
  await clock.advance(600)
  expect(told).toEqual(['down for 3 s'])
})

it('stays true while nothing changes but the time', async () => {
  const { clock, told } = setUp()
  await clock.advance(35_000)
  expect(told).toEqual(['down for 10 s', 'down for 21 s', 'down for 31 s'])
})

it('is silent after its stop', async () => {
  const { clock, told, line, change, listeners } = setUp()
  change()
  line.stop()
  await clock.advance(60_000)
  expect(told).toEqual([])
  expect(listeners.size).toBe(0)
  expect(clock.sleeping).toBe(0)
})
