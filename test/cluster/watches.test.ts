import { describe, expect, it } from 'vitest'
import { FAULTS } from './faults.ts'
import { judge } from './findings.ts'
import { findTwoHomes } from './home-watch.ts'
import { watchLimit } from './limit-watch.ts'
import { type Visit, VisitLog } from './visit-log.ts'

const visit = (begin: number, end: number, more: Partial<Visit> = {}): Visit => ({
  ...{ host: 'cam', entrance: 'node 1', outcome: '200', begin, end },
  ...more,
})
const by = (endpoint: string, begin: number, end: number) => visit(begin, end, { endpoint })

describe('findTwoHomes', () => {
  it('finds an endpoint that answers after another one has', () => {
    const found = findTwoHomes([by('a', 0, 10), by('b', 20, 30), by('a', 40, 50)])
    expect(found).toEqual([{ host: 'cam', endpoints: ['a', 'b'], at: 30 }])
  })

  it('minds no move, and no requests that were under way at the same time', () => {
    expect(findTwoHomes([by('a', 0, 10), by('b', 20, 30), by('b', 40, 50)])).toEqual([])
    expect(findTwoHomes([by('a', 0, 10), by('b', 20, 45), by('a', 40, 50)])).toEqual([])
    expect(findTwoHomes([by('a', 0, 21), by('b', 20, 30), by('a', 40, 50)])).toEqual([])
    const others = [by('a', 0, 10), { ...by('b', 20, 30), host: 'door' }, by('a', 40, 50)]
    expect(findTwoHomes(others)).toEqual([])
  })
})

describe('watchLimit', () => {
  const options = { capacity: 2, windowMs: 100, planned: [], unplanned: [], givenUp: [] }
  const over = (visits: Visit[], change = {}) =>
    watchLimit(visits, { ...options, ...change }).over.map(({ at, count }) => [at, count])

  it('finds a window that has admitted too much, wherever it begins', () => {
    const visits = [by('a', 0, 1), by('a', 150, 151), by('a', 160, 161), by('a', 240, 241)]
    expect(over(visits)).toEqual([[150, 3]])
    expect(watchLimit(visits, options)).toMatchObject({ windows: 4, most: 3 })
  })

  it('counts neither refusals nor what may have been admitted outside of the window', () => {
    expect(over([by('a', 0, 1), by('a', 2, 3), by('a', 99, 101)])).toEqual([])
    const refused = visit(4, 5, { outcome: '429', endpoint: 'a' })
    expect(over([by('a', 0, 1), by('a', 2, 3), refused])).toEqual([])
  })

  it('lets a window with an unplanned move be, and none with a planned one', () => {
    const visits = [by('a', 0, 1), by('a', 10, 11), by('b', 20, 21), by('b', 30, 31)]
    expect(over(visits)).toEqual([])
    expect(over(visits, { planned: [{ begin: 5, end: 15 }] })).toEqual([
      [0, 4],
      [10, 3],
    ])
    const cloud = visits.map(({ endpoint: _, ...rest }) => rest)
    expect(over(cloud, { givenUp: [{ begin: 15, end: 16 }] })).toEqual([])
    expect(over(cloud)).toHaveLength(2)
  })

  it('blames nothing planned for a move that may be for something else', () => {
    // Nobody was let in for a while, in which one thing came after the other.
    const visits = [by('a', 0, 1), by('a', 10, 11), by('b', 60, 61), by('b', 70, 71)]
    const planned = [{ begin: 5, end: 15 }]
    expect(over(visits, { planned })).toHaveLength(2)
    expect(over(visits, { planned, unplanned: [{ begin: 50, end: 55 }] })).toEqual([])
    expect(over(visits, { planned, unplanned: [{ begin: 80, end: 90 }] })).toHaveLength(2)
  })
})

describe('VisitLog', () => {
  const recoveries = (...visits: Visit[]) => {
    const log = new VisitLog()
    for (const it of visits) log.add(it)
    return log.recoveries(1_000, 10_000)
  }
  const bad = (begin: number, end: number) => visit(begin, end, { outcome: '503' })

  it('takes the first answer after the last failure for when a name is served again', () => {
    const served = [visit(900, 1_100), bad(2_000, 2_010), visit(2_005, 2_900), visit(3_000, 3_010)]
    expect(recoveries(...served)).toEqual([
      { host: 'cam', entrance: 'node 1', ms: 1_900, last: '503' },
    ])
    expect(recoveries(visit(1_200, 1_300), visit(1_400, 1_500))[0]?.ms).toBe(300)
  })

  it('blames the end of a fault for nothing that began before it, or after the next', () => {
    expect(recoveries(bad(900, 8_000), visit(1_100, 1_200))[0]?.ms).toBe(200)
    const before = [visit(950, 1_100), bad(990, 1_050), visit(1_900, 2_000)]
    expect(recoveries(...before)[0]?.ms).toBe(100)
    expect(recoveries(visit(1_100, 1_200), bad(9_990, 10_002))[0]?.ms).toBe(200)
    expect(recoveries(visit(1_100, 1_200), bad(9_990, 9_999))[0]?.ms).toBe(Number.POSITIVE_INFINITY)
  })

  it('says that a name was never served, the worst first', () => {
    const found = recoveries(visit(1_000, 1_001), { ...bad(2_000, 2_001), host: 'door' })
    expect(found.map(({ host, ms }) => [host, ms])).toEqual([
      ['door', Number.POSITIVE_INFINITY],
      ['cam', 1],
    ])
  })
})

describe('a fault that cuts the links of agents', () => {
  const fault = FAULTS.find(({ name }) => name === 'PostgreSQL away with cut links')
  if (!fault) throw new Error('there is no such fault')
  const judged = (...visits: Visit[]) => {
    const log = new VisitLog()
    for (const it of [...visits, visit(20_000, 20_010)]) log.add(it)
    const past = { number: 1, fault, begin: 0, end: 19_000, until: 30_000, what: '' }
    const { rows, missed } = judge({
      ...{ log, lost: [], writes: { acknowledged: 1, refused: 0 }, at: String },
      hosts: [{ host: 'cam', kind: 'plain', isLimited: false }],
      faults: [{ ...past, stalledMs: 0, cuts: [1_000] }],
    })
    return { row: rows.at(-1), missed }
  }

  it('wants the names back within two seconds, and lets requests fail that were under way', () => {
    const { row, missed } = judged(visit(900, 1_001, { outcome: '502' }), visit(1_100, 2_900))
    expect(row).toMatchObject({ isMet: true, measured: expect.stringContaining('back 1.9 s') })
    expect(row?.measured).toContain('0 of 2 failed, and 1 under way at the cut; 0 x 404')
    expect(missed).toEqual([])
    expect(judged(visit(1_100, 3_100)).row?.isMet).toBe(false)
  })

  it('forgives no later failure, and no 404 at any name', () => {
    const [served, failed] = [visit(1_100, 1_200), visit(2_000, 2_010, { outcome: '503' })]
    expect(judged(served, failed).row?.isMet).toBe(false)
    const unknown = visit(500, 510, { host: 'foreign', outcome: '404 ERR_NGROK_3200' })
    expect(judged(served, unknown).missed).toEqual([expect.stringContaining('404 ERR_NGROK_3200')])
  })
})
