import { describe, expect, it } from 'vitest'
import { judgeVisitors, VisitorOutcomes } from '../../../src/gateway/endpoints/visitor-outcomes.ts'

const NONE = { answered: 0, garbage: 0, unreachable: 0, late: 0, abandoned: 0, gaveUp: 0 }
const judge = (counts: Partial<typeof NONE>, oldestWaitMs = 0, longestMs = 0) =>
  judgeVisitors({ counts: { ...NONE, ...counts }, oldestWaitMs, longestMs })

describe('judgeVisitors', () => {
  it.each([
    [{}, undefined],
    [{ answered: 1 }, 'answered'],
    [{ garbage: 1 }, 'garbage'],
    [{ unreachable: 1 }, 'unreachable'],
    [{ late: 1 }, 'slow'],
    [{ gaveUp: 1 }, 'slow'],
    [{ abandoned: 5 }, undefined],
    [{ answered: 3, garbage: 3 }, 'answered'],
    [{ answered: 3, garbage: 3, late: 1 }, 'garbage'],
    [{ answered: 1, unreachable: 2 }, 'unreachable'],
  ])('goes by the majority: %o is %s', (counts, state) => {
    expect(judge(counts)).toBe(state)
  })

  it('calls a service slow that nobody waits for in vain yet, after five seconds', () => {
    expect(judge({}, 4_999)).toBeUndefined()
    expect(judge({}, 5_000)).toBe('slow')
    expect(judge({ answered: 1 }, 60_000)).toBe('answered')
  })

  it('does not call a service slow that takes as long whenever it is well', () => {
    expect(judge({}, 59_999, 30_000)).toBeUndefined()
    expect(judge({}, 60_000, 30_000)).toBe('slow')
  })
})

describe('VisitorOutcomes', () => {
  it('knows the oldest wait, and counts each once', () => {
    const outcomes = new VisitorOutcomes()
    const first = outcomes.begin(1_000)
    const second = outcomes.begin(3_000)
    expect(outcomes.oldestWaitMs(4_000)).toBe(3_000)
    outcomes.end(first, 'answered', 5_000)
    outcomes.end(first, 'answered', 6_000)
    expect([outcomes.oldestWaitMs(4_000), outcomes.longestMs]).toEqual([1_000, 4_000])
    outcomes.end(second, 'garbage', 5_000)
    expect(outcomes.counts).toEqual({ ...NONE, answered: 1, garbage: 1 })
    expect([outcomes.waiting, outcomes.oldestWaitMs(9_000)]).toEqual([0, 0])
  })

  it('counts a visitor who leaves after a while apart from one who leaves at once', () => {
    const outcomes = new VisitorOutcomes()
    outcomes.end(outcomes.begin(0), 'abandoned', 4_999)
    outcomes.end(outcomes.begin(0), 'abandoned', 5_000)
    expect(outcomes.counts).toMatchObject({ abandoned: 2, gaveUp: 1 })
  })

  it('does not count what goes on elsewhere', () => {
    const outcomes = new VisitorOutcomes()
    outcomes.end(outcomes.begin(0), undefined, 60_000)
    expect([outcomes.counts, outcomes.waiting, outcomes.longestMs]).toEqual([NONE, 0, 0])
  })
})
