import { expect, it } from 'vitest'
import { createLogger } from '../../../src/base/logger.ts'
import { NodeDrain } from '../../../src/gateway/cluster/node-drain.ts'
import { ManualClock } from '../../helpers/manual-clock.ts'

const MINUTE = 60_000

/** A node with sessions that go when they are sent away, but for those that are stuck. */
function openDrain({ sessions = 3, stuck = 0, hasOthers = true, isAway = false } = {}) {
  const others = { serve: hasOthers }
  const clock = new ManualClock()
  const here = new Set(Array.from({ length: sessions }, (_, at) => `ts_${at}`))
  const sent: [id: string, at: number][] = []
  const stood: string[] = []
  const drain = new NodeDrain({
    lease: {
      stand: async (standing) => {
        stood.push(standing)
        if (isAway) throw new Error('nobody answers')
      },
    },
    sessions: () => here,
    left: () => ({ agents: here.size, endpoints: 0, requests: 0 }),
    hasOthers: () => others.serve,
    log: createLogger('silent'),
    clock,
  })
  drain.open(async (id) => {
    sent.push([id, clock.monotonic()])
    if (sent.length > stuck) here.delete(id)
  })
  return { drain, clock, here, sent, stood, others }
}

it('sends sessions away one after another, each once, and those that come in between', async () => {
  const { drain, clock, here, sent, stood } = openDrain({ stuck: 1 })
  const startedAt = clock.monotonic()
  await drain.start()
  await drain.start()
  await clock.advance(MINUTE)
  here.add('ts_late')
  await clock.advance(MINUTE)
  expect(sent.map(([id]) => id)).toEqual(['ts_0', 'ts_1', 'ts_2', 'ts_late'])
  expect(sent.slice(0, 3).map(([, at]) => at - startedAt)).toEqual([0, 50, 100])
  expect(stood).toEqual(['draining'])
  expect(drain.progress).toMatchObject({ from: { agents: 3 }, left: { agents: 1 } })
  expect(drain.isDone).toBe(false)
  here.clear()
  expect(drain.isDone).toBe(true)
})

it('ends by itself, and says so, when nobody else serves any more', async () => {
  const { drain, clock, sent, stood, others } = openDrain({ sessions: 10, stuck: 10 })
  await drain.start()
  drain.onNodes()
  expect([drain.isOn, drain.givenUp]).toEqual([true, undefined])
  others.serve = false
  drain.onNodes()
  drain.onNodes()
  expect([drain.isOn, drain.progress]).toEqual([false, undefined])
  expect(drain.givenUp).toEqual({
    at: clock.now(),
    reason: expect.stringContaining('No other gateway is left'),
  })
  const asked = sent.length
  await clock.advance(MINUTE)
  expect([sent.length, stood]).toEqual([asked, ['draining', 'serving']])
  await expect(drain.start()).rejects.toMatchObject({ code: 841 })
  expect(drain.givenUp).toBeDefined()
  // Until somebody has it drain again, or has seen it.
  others.serve = true
  await drain.start()
  expect([drain.isOn, drain.givenUp]).toEqual([true, undefined])
  others.serve = false
  drain.onNodes()
  await drain.undo()
  expect(drain.givenUp).toBeUndefined()
})

it('goes on without others where the node ends anyway', async () => {
  const { drain, clock, here, stood, others } = openDrain({ stuck: 3 })
  const ended = drain.end(MINUTE)
  await clock.advance(1_000)
  others.serve = false
  drain.onNodes()
  expect([drain.isOn, drain.givenUp]).toEqual([true, undefined])
  here.clear()
  await clock.advance(1_000)
  await ended
  expect(stood).toEqual(['draining'])
})

it.each([
  ['as long as sessions leave', 4_000, 5, 20_000],
  ['no longer than its time when none leaves', MINUTE, 1, 5_000],
  ['40 s at most', 4_000, 100, 40_000],
])('waits for its end %s', async (_how, everyMs, sessions, endsAfterMs) => {
  const { drain, clock, here } = openDrain({ sessions, stuck: sessions })
  let isOver = false
  void drain.end(5_000).then(() => {
    isOver = true
  })
  const since = clock.monotonic()
  while (!isOver && clock.monotonic() - since < 2 * MINUTE) {
    await clock.advance(100)
    const [next] = here
    if (next !== undefined && (clock.monotonic() - since) % everyMs === 0) here.delete(next)
  }
  expect(clock.monotonic() - since).toBeGreaterThanOrEqual(endsAfterMs)
  expect(clock.monotonic() - since).toBeLessThan(endsAfterMs + 500)
})

it('is not taken back where the node ends', async () => {
  const { drain, clock, here, stood } = openDrain({ stuck: 3 })
  const ended = drain.end(MINUTE)
  await clock.advance(1_000)
  await expect(drain.undo()).rejects.toMatchObject({ code: 841 })
  expect(drain.isOn).toBe(true)
  here.clear()
  await clock.advance(1_000)
  await ended
  expect(stood).toEqual(['draining'])
})

it('ends for all who have begun it when PostgreSQL is away', async () => {
  const { drain } = openDrain({ isAway: true })
  const begun = await Promise.allSettled([drain.start(), drain.start()])
  expect(begun).toMatchObject([{ reason: { code: 843 } }, { reason: { code: 843 } }])
})

it('hurries where there is little time', async () => {
  const { drain, clock, sent } = openDrain({ sessions: 100 })
  await drain.start(1_000)
  await clock.advance(500)
  expect(sent).toHaveLength(100)
})

it('ends when it is taken back', async () => {
  const { drain, clock, sent, stood } = openDrain()
  await drain.start()
  await drain.undo()
  await drain.undo()
  await clock.advance(MINUTE)
  expect(sent.length).toBeLessThanOrEqual(1)
  expect([drain.isOn, drain.isDone, drain.progress]).toEqual([false, false, undefined])
  expect(stood).toEqual(['draining', 'serving'])
})

it('is refused where nobody would take over', async () => {
  await expect(openDrain({ hasOthers: false }).drain.start()).rejects.toMatchObject({ code: 841 })
  const { drain, clock, sent } = openDrain({ isAway: true })
  await expect(drain.start()).rejects.toMatchObject({ code: 843 })
  await clock.advance(MINUTE)
  expect([drain.isOn, sent]).toEqual([false, []])
})
