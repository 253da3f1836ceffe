import { expect, it } from 'vitest'
import { ServiceTime } from '../../../src/agent/probes/service-time.ts'
import { ManualClock } from '../../helpers/manual-clock.ts'

it('knows nothing before the service has said what time it is', () => {
  const time = new ServiceTime(new ManualClock())
  expect([time.now, time.skewMs]).toEqual([undefined, undefined])
})

it('goes on without the wall clock, and says at once how far that is off', async () => {
  const clock = new ManualClock()
  const time = new ServiceTime(clock)
  const date = clock.now() - 2_000
  time.note(date)
  expect(time.skewMs).toBe(2_000)
  await clock.advance(5_000)
  clock.stepWall(-90_000)
  expect(time.now).toBe(date + 5_000)
  expect(time.skewMs).toBe(-88_000)
})

it('takes clocks that agree for such, wherever in a second they are asked: a date has whole ones', () => {
  const clock = new ManualClock()
  const time = new ServiceTime(clock)
  time.note(clock.now() - 999)
  expect(time.skewMs).toBe(0)
})
