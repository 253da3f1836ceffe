import { describe, expect, it, onTestFinished } from 'vitest'
import { DeviceWatch } from '../../../src/agent/device/device-watch.ts'
import { SteadyClock } from '../../../src/agent/device/steady-clock.ts'
import { ServiceTime } from '../../../src/agent/probes/service-time.ts'
import { captureLog } from '../../helpers/captured-log.ts'
import { ManualClock } from '../../helpers/manual-clock.ts'

const POLL_MS = 2_000
const HOUR = 3_600_000

/** A device that looks at itself, whose service says its time or nothing. */
function watched() {
  const clock = new ManualClock()
  const steady = new SteadyClock(clock)
  const captured = captureLog()
  const serviceTime = new ServiceTime(clock)
  const stop = new AbortController()
  onTestFinished(() => stop.abort())
  const state = {
    date: undefined as number | undefined,
    fails: false,
    isTold: 0,
    skews: [] as unknown[],
  }
  const watch = new DeviceWatch({
    clock,
    steady,
    everyMs: POLL_MS,
    serviceTime,
    serviceDate: async () => {
      if (state.fails) throw new Error('nobody answers')
      return state.date
    },
    onClockSet: () => state.skews.push(serviceTime.skewMs),
    onChange: () => {
      state.isTold += 1
    },
    signal: stop.signal,
    log: captured.log,
  })
  const running = watch.run()
  return { clock, captured, state, watch, running, stop, look: () => clock.advance(POLL_MS) }
}

describe('a device that looks at itself', () => {
  it('asks the service for the time when its clock was set, and compares them anew', async () => {
    const { clock, captured, state, look } = watched()
    await look()
    expect([state.isTold, state.skews]).toEqual([0, []])
    state.date = clock.now() + POLL_MS
    clock.stepWall(HOUR)
    await look()
    expect(state.skews).toEqual([HOUR])
    expect(state.isTold).toBeGreaterThan(0)
    const told = captured.lines.filter(({ msg }) => msg === 'the device clock was changed')
    expect(told).toMatchObject([{ jumpMs: HOUR }])
    await look()
    expect(state.skews).toHaveLength(1)
  })

  it('goes on where the service has no answer', async () => {
    const { clock, state, look } = watched()
    state.fails = true
    clock.stepWall(-HOUR)
    await look()
    expect(state.skews).toEqual([undefined])
    state.fails = false
    clock.stepWall(HOUR)
    await look()
    expect(state.skews).toEqual([undefined, undefined])
  })

  it('ends when it is told to', async () => {
    const { clock, running, stop, state } = watched()
    stop.abort()
    await running
    clock.stepWall(HOUR)
    await clock.advance(POLL_MS)
    expect([state.skews, clock.sleeping]).toEqual([[], 0])
  })
})
