import { describe, expect, it } from 'vitest'
import { RpcLanes, type RpcLanesOptions } from '../../../src/agent/sessions/rpc-lanes.ts'
import { createDeferred } from '../../../src/base/deferred.ts'
import { ManualClock } from '../../helpers/manual-clock.ts'

const BOUNDS = { silenceMs: 10_000, longestMs: 60_000 }

/** Lanes that answer calls in order, a round trip each, as the SDK does. */
function setUp(options: Partial<RpcLanesOptions<string>> & { roundTripMs?: number } = {}) {
  const clock = new ManualClock()
  const { roundTripMs = 100, connectMs = 400 } = options
  const stalls: string[] = []
  const lines = new Map<string, Promise<unknown>>()
  let opened = 0
  const lanes = new RpcLanes<string>({
    ...{ first: 'lane 0', connectMs, bounds: BOUNDS, clock },
    openLane: async () => {
      opened += 1
      const name = `lane ${opened}`
      await clock.sleep(connectMs)
      return name
    },
    onStalled: (detail) => stalls.push(detail),
    ...options,
  })
  const done: string[] = []
  const answer = (lane: string, name: string) => {
    const mine = (lines.get(lane) ?? Promise.resolve()).then(() => clock.sleep(roundTripMs))
    lines.set(lane, mine)
    return mine.then(() => void done.push(name))
  }
  const bind = (count: number) =>
    Array.from({ length: count }, (_, n) =>
      lanes.run((lane) => answer(lane, `${n}`), 'opening').catch((error: Error) => error.message),
    )
  const begun: string[] = []
  /** Opens a name, which takes 100 ms. */
  const open = (name: string) => {
    const work = () => {
      begun.push(name)
      return clock.sleep(100)
    }
    return lanes.run(work, 'opening', { name })
  }
  /** In small steps: a call begins when the one before it is answered. */
  const pass = async (ms: number) => {
    for (let passed = 0; passed < ms; passed += 50) await clock.advance(50)
  }
  return { clock, lanes, stalls, done, bind, pass, open, begun, opened: () => opened }
}

describe('RpcLanes', () => {
  it('needs one connection where the queue is short, and opens others where it is long', async () => {
    const short = setUp()
    short.bind(9)
    await short.pass(1_500)
    expect([short.done.length, short.opened()]).toEqual([9, 0])

    const long = setUp()
    long.bind(250)
    // One connection alone would take 25 s.
    await long.pass(6_000)
    expect(long.done.length).toBe(250)
    expect(long.opened()).toBeGreaterThan(8)

    const longest = setUp()
    longest.bind(2_000)
    await longest.pass(20_000)
    expect(longest.opened()).toBe(15)
  })

  it('gives a call its whole time after a long silence', async () => {
    const on = setUp({ roundTripMs: 5_000, openLane: undefined })
    await on.clock.advance(100_000)
    on.bind(1)
    await on.pass(6_000)
    expect([on.done, on.stalls]).toEqual([['0'], []])
  })

  it('opens none that would cost more than they save, and none where the service has one alone', async () => {
    // Each bind is as slow as on a link of 2 s and 5 kB/s, and so is each connect.
    const slow = setUp({ roundTripMs: 2_500, connectMs: 12_000 })
    slow.bind(10)
    await slow.pass(60_000)
    expect(slow.done.length).toBe(10)
    expect(slow.opened()).toBeLessThanOrEqual(2)

    const alone = setUp({ openLane: undefined })
    alone.bind(50)
    await alone.pass(6_000)
    expect(alone.done.length).toBe(50)
  })

  it('goes on with those that there are when no more are let in', async () => {
    let tries = 0
    const on = setUp({
      openLane: async () => {
        tries += 1
        throw new Error('at its limit')
      },
    })
    on.bind(100)
    await on.pass(11_000)
    expect(on.done.length).toBe(100)
    expect(tries).toBe(1)
  })

  it('gives a call its time from when it is its turn, and more on a slow link', async () => {
    // Twenty at 1.4 s: the last one is answered after 28 s.
    const on = setUp({ roundTripMs: 1_400, connectMs: 5_600, openLane: undefined })
    on.bind(20)
    await on.pass(29_000)
    expect([on.done.length, on.stalls]).toEqual([20, []])

    const slower = setUp({ roundTripMs: 12_000, connectMs: 16_000, openLane: undefined })
    slower.bind(2)
    await slower.pass(25_000)
    expect([slower.done.length, slower.stalls]).toEqual([2, []])
  })

  it('waits longer while the link shows signs of life, and not for good', async () => {
    const { lanes, stalls, pass } = setUp()
    const never = lanes.run(() => new Promise(() => {}), 'opening').catch((error) => error.message)
    await pass(9_000)
    lanes.heard()
    await pass(9_000)
    lanes.heard()
    expect(stalls).toEqual([])
    for (let beat = 0; beat < 5; beat += 1) {
      await pass(9_000)
      lanes.heard()
    }
    expect(stalls).toEqual(['opening took longer than 60000 ms'])
    expect(await never).toBe('opening took longer than 60000 ms')

    const silent = setUp()
    silent.bind(1)
    const gone = setUp({ connectMs: 100 })
    gone.lanes.run(() => new Promise(() => {}), 'opening').catch(() => {})
    await gone.pass(10_000)
    expect(gone.stalls).toEqual(['opening took longer than 10000 ms'])
  })

  it('begins with the names that visitors wait for, the longest wait first', async () => {
    const { lanes, pass, open, begun } = setUp({ openLane: undefined })
    for (const name of ['a', 'b', 'c', 'd', 'e']) void open(name)
    lanes.prefer(['late', 'e'])
    lanes.prefer(['d', 'e'])
    void open('f')
    void open('late')
    await pass(1_000)
    expect(begun).toEqual(['a', 'b', 'late', 'e', 'd', 'c', 'f'])
    // Once: next time a name is like any other, until visitors wait again.
    for (const name of ['a', 'b', 'c', 'e', 'd']) void open(name)
    lanes.prefer(['d'])
    await pass(1_000)
    expect(begun.slice(-5)).toEqual(['a', 'b', 'd', 'c', 'e'])
  })

  it('keeps no more than 4,096 names that it has no call for', async () => {
    const { lanes, pass, open, begun } = setUp({ openLane: undefined })
    lanes.prefer(Array.from({ length: 4_200 }, (_, n) => `name ${n}`))
    for (const name of ['a', 'b', 'name 4199', 'c', 'name 4095']) void open(name)
    await pass(1_000)
    expect(begun).toEqual(['a', 'b', 'name 4095', 'name 4199', 'c'])
  })

  it('begins nothing after its end', async () => {
    const { lanes, bind, pass, done } = setUp({ openLane: undefined })
    const outcomes = bind(5)
    lanes.close()
    await pass(1_000)
    expect(done).toEqual(['0', '1'])
    expect((await Promise.all(outcomes)).slice(2)).toEqual(
      Array.from({ length: 3 }, () => 'the session has ended'),
    )
    await expect(lanes.run(() => Promise.resolve(), 'opening')).rejects.toThrow('has ended')
  })

  it('closes on the lane that is asked for, before all that waits', async () => {
    const { lanes, bind, pass, done } = setUp({ openLane: undefined })
    bind(5)
    const closed = createDeferred<string>()
    const close = async (lane: string) => {
      done.push('close')
      closed.resolve(lane)
    }
    void lanes.run(close, 'closing', { lane: 'lane 0' })
    await pass(1_000)
    expect(await closed.promise).toBe('lane 0')
    expect(done.indexOf('close')).toBeLessThan(3)
  })
})
