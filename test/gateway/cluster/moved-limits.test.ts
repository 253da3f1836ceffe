import { describe, expect, it } from 'vitest'
import { MovedLimits } from '../../../src/gateway/cluster/moved-limits.ts'
import { type Claim, claimKey } from '../../../src/gateway/cluster/nodes/claim.ts'
import { NoAnswerError } from '../../../src/gateway/ports/other-gateways.ts'
import { RateLimiter } from '../../../src/policy/limit/rate-limiter.ts'
import { captureLog } from '../../helpers/captured-log.ts'
import { claimOf } from '../../helpers/cluster-node.ts'
import { ManualClock } from '../../helpers/manual-clock.ts'

const LIMIT = { capacity: 1, windowMs: 3_600_000 }
type States = Map<string, RateLimiter>

/** Two nodes: `ways` says what becomes of each question on its way from the second to the first. */
function openTwo(ways: (() => void)[] = [], isReached = () => true) {
  const clock = new ManualClock()
  const { log, text } = captureLog()
  const states: States = new Map()
  const taken: string[] = []
  const remembered: unknown[] = []
  let answer = (_of: unknown): unknown => undefined
  const common = { isReached, remember: (...it: unknown[]) => remembered.push(it), clock, log }
  const home = new MovedLimits({
    ...{ ...common, nodeId: 'nd_1', statesOf: () => states },
    onTaken: ({ host }, { nodeId }) => taken.push(`${host} by ${nodeId}`),
    questions: {
      on: (_ask, as) => {
        answer = as
      },
      ask: () => Promise.reject(new Error('nobody is asked')),
    },
  })
  const next = new MovedLimits({
    ...{ ...common, nodeId: 'nd_2', statesOf: () => undefined, onTaken: () => {} },
    questions: {
      on: () => {},
      ask: async (_nodeId, _ask, of) => {
        ways.shift()?.()
        return JSON.parse(JSON.stringify(answer(JSON.parse(JSON.stringify(of)))))
      },
    },
  })
  const limiter = (change = {}) => new RateLimiter({ ...LIMIT, clock, ...change })
  const isFull = (it: RateLimiter) => it.tryCount('visitor', '198.51.100.1') > 0
  const use = (name: string, it: RateLimiter) => {
    it.tryCount('visitor', '198.51.100.1')
    states.set(name, it)
  }
  return { clock, home, next, states, taken, remembered, limiter, isFull, use, text }
}

/** Visitors whose counts take 24 bytes each. */
function countMany(limiter: RateLimiter, visitors: number): void {
  for (let n = 0; n < visitors; n += 1)
    limiter.tryCount(`visitor ${n}`, `10.${n >> 16}.${(n >> 8) & 255}.${n & 255}`)
}

describe('MovedLimits', () => {
  const claim: Claim = claimOf('few.example')

  it('takes over what was counted, of limits that are as they were, once nobody is counted there', async () => {
    const { next, taken, remembered, limiter, isFull, use } = openTwo()
    for (const name of ['same', 'other capacity', 'other window', 'gone']) use(name, limiter())
    const states: States = new Map([
      ['same', limiter()],
      ['other capacity', limiter({ capacity: 2 })],
      ['other window', limiter({ windowMs: 60_000 })],
      ['new', limiter()],
    ])
    await next.importStates(claim, states, 'nd_1')
    expect(taken).toEqual(['few.example by nd_2'])
    expect(remembered).toEqual([[claim, states]])
    expect([...states].filter(([, it]) => isFull(it)).map(([name]) => name)).toEqual(['same'])
  })

  it('asks nobody for a policy without limits', async () => {
    const { next, taken } = openTwo()
    await next.importStates(claim, new Map(), 'nd_1')
    expect(taken).toEqual([])
  })

  it('asks again where a node is there and does not answer, and no longer than it is', async () => {
    let isThere = true
    let asked = 0
    const fail = () => {
      asked += 1
      if (asked === 2) isThere = false
      throw new NoAnswerError('there is no link')
    }
    const { clock, next, limiter, isFull, use, text } = openTwo([fail, fail, fail], () => isThere)
    use('same', limiter())
    const states: States = new Map([['same', limiter()]])
    const untilSettled = async (take: Promise<void>) => {
      let isSettled = false
      const over = take.then(() => {
        isSettled = true
      })
      for (let n = 0; n < 10 && !isSettled; n += 1) await clock.advance(100)
      await over
    }
    await untilSettled(next.importStates(claim, states, 'nd_1'))
    expect(asked).toBe(2)
    expect(text()).toContain('restart at zero on its new node')
    isThere = true
    await untilSettled(next.importStates(claim, states, 'nd_1'))
    expect([asked, isFull(states.get('same') as RateLimiter)]).toEqual([3, true])
  })

  it('leaves out a limit that has counted too much to be sent, and no other', async () => {
    const { next, limiter, isFull, use } = openTwo()
    const huge = limiter({ maxBuckets: 300_000 })
    countMany(huge, 200_000)
    use('huge', huge)
    use('same', limiter())
    const states: States = new Map([
      ['huge', limiter()],
      ['same', limiter()],
    ])
    await next.importStates(claim, states, 'nd_1')
    expect([...states.values()].map(isFull)).toEqual([false, true])
  })

  it('leaves out those for which there is no room beside the others', async () => {
    const { next, limiter, isFull, use } = openTwo()
    const states: States = new Map()
    for (const name of ['first', 'second', 'third']) {
      const large = limiter({ maxBuckets: 300_000 })
      use(name, large)
      if (name !== 'third') countMany(large, 100_000)
      states.set(name, limiter())
    }
    await next.importStates(claim, states, 'nd_1')
    expect([...states.values()].map(isFull)).toEqual([true, false, true])
  })

  it('asks no longer than visitors wait for the counts', async () => {
    let asked = 0
    const fail = () => {
      asked += 1
      throw new NoAnswerError('there is no link')
    }
    const { clock, next, limiter } = openTwo(Array.from({ length: 60 }, () => fail))
    const take = next.importStates(claim, new Map([['same', limiter()]]), 'nd_1')
    for (let passed = 0; passed < 5_000; passed += 100) await clock.advance(100)
    await take
    expect([asked > 30, asked <= 41]).toEqual([true, true])
  })

  it('waits at its end for those who come for counts, for two seconds', async () => {
    const { clock, home, next, limiter, use, states } = openTwo()
    home.give(claim, states)
    // Nobody was counted.
    expect(home.awaited).toBe(0)
    use('same', limiter())
    home.give(claim, states)
    expect(home.awaited).toBe(1)
    await next.importStates(claim, new Map([['same', limiter()]]), 'nd_1')
    expect(home.awaited).toBe(0)
    home.give(claim, states)
    home.give({ ...claim, key: claimKey({ protocol: 'https', host: 'b.example' }, null) }, states)
    await clock.advance(2_001)
    expect(home.awaited).toBe(0)
  })
})
