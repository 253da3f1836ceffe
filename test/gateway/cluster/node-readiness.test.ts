import { describe, expect, it } from 'vitest'
import {
  clockFaultOf,
  isShared,
  type NodeCondition,
  readinessOf,
} from '../../../src/gateway/cluster/node-readiness.ts'
import type { LeaseState } from '../../../src/gateway/cluster/nodes/lease-state.ts'
import {
  DatabaseError,
  type DatabaseErrorCode,
} from '../../../src/gateway/cluster/postgres/database-error.ts'

const GOOD: NodeCondition = {
  lease: 'held',
  isDraining: false,
  isOutageOwn: false,
  clock: undefined,
  problem: undefined,
}
const problemOf = (code: DatabaseErrorCode) => new DatabaseError(code, 'for a test')

describe('whether visitors should come to a gateway of several', () => {
  it.each<[what: string, condition: Partial<NodeCondition>, state: string]>([
    ['all is well', {}, 'ready'],
    ['PostgreSQL has just gone', { problem: problemOf('database-unreachable') }, 'degraded'],
    ['it is gone for all', { lease: 'overdue' }, 'degraded'],
    ['it is gone here alone', { lease: 'overdue', isOutageOwn: true }, 'away'],
    ['the password was changed', { problem: problemOf('database-password') }, 'degraded'],
    [
      'a newer gateway has changed the tables',
      { problem: problemOf('database-newer') },
      'degraded',
    ],
    ['the disks of all are full', { problem: problemOf('replica-failed') }, 'degraded'],
    [
      'the own disk alone is full',
      { problem: problemOf('replica-failed'), isOutageOwn: true },
      'away',
    ],
    ['the others are too new for it, or were', { lease: 'unfit' }, 'degraded'],
    ['the others are too new for it, and fine', { lease: 'unfit', isOutageOwn: true }, 'away'],
    ['its clock is wrong', { clock: 'own' }, 'away'],
    ['its clock or that of PostgreSQL is wrong', { clock: 'unknown' }, 'degraded'],
    ['it drains', { isDraining: true }, 'away'],
    ['it drains while PostgreSQL is away', { isDraining: true, lease: 'overdue' }, 'away'],
    ...(['none', 'unsure', 'fenced', 'replaced', 'forgotten', 'left'] as const).map(
      (lease: LeaseState) =>
        [`its lease is ${lease}`, { lease }, 'away'] as [string, object, string],
    ),
  ])('when %s', (_what, condition, state) => {
    const readiness = readinessOf({ ...GOOD, ...condition })
    expect(readiness.state).toBe(state)
    if (readiness.state === 'ready') return
    for (const reason of readiness.reasons) expect(reason).toMatch(/^[A-Z].*[.?]$/)
  })

  it('asks how the others are where they may be no better', () => {
    expect(isShared(GOOD)).toBe(false)
    expect(isShared({ ...GOOD, isDraining: true })).toBe(false)
    expect(isShared({ ...GOOD, problem: problemOf('database-newer') })).toBe(false)
    expect(isShared({ ...GOOD, lease: 'overdue' })).toBe(true)
    expect(isShared({ ...GOOD, lease: 'unfit' })).toBe(true)
    expect(isShared({ ...GOOD, problem: problemOf('replica-failed') })).toBe(true)
  })

  it.each([
    [0, [0], undefined],
    [300_000, [], undefined],
    [-300_001, [], 'unknown'],
    [300_001, [-300_000], 'own'],
    [300_001, [0, 300_001, 0], 'own'],
    // PostgreSQL has the wrong clock.
    [-3_600_000, [-3_600_000, undefined], 'unknown'],
    // PostgreSQL shares the wrong clock with a gateway.
    [-3_600_000, [0, -3_600_000], 'unknown'],
    [undefined, [0], undefined],
  ])('finds who has the wrong clock: %s ms here, %s at the others', (own, others, fault) => {
    expect(clockFaultOf(own, others)).toBe(fault)
  })

  it('blames neither PostgreSQL nor the network where the versions do not fit', () => {
    for (const isOutageOwn of [true, false]) {
      const readiness = readinessOf({ ...GOOD, lease: 'unfit', isOutageOwn })
      const { reasons } = readiness as { reasons: readonly string[] }
      expect(reasons).toEqual([expect.stringContaining('do not match')])
      expect(reasons[0]).not.toMatch(/PostgreSQL|network/)
    }
  })

  it('says all that there is to say', () => {
    const problem = problemOf('database-unreachable')
    expect(readinessOf({ ...GOOD, lease: 'overdue', problem })).toEqual({
      state: 'degraded',
      reasons: [expect.stringContaining('No gateway reaches PostgreSQL'), problem.message],
    })
  })
})
