import { afterAll, beforeAll, describe, expect, it, onTestFinished } from 'vitest'
import { FAST, TestNode } from '../../helpers/cluster-node.ts'
import { eventually } from '../../helpers/eventually.ts'
import { hasPostgres, TestPostgres } from '../../helpers/postgres.ts'

const LEASE_MS = 10_000

describe.skipIf(!hasPostgres)('a lease', () => {
  let postgres: TestPostgres
  beforeAll(async () => {
    postgres = await TestPostgres.start()
  })
  afterAll(() => postgres?.remove())

  it('is firm when it has been held for as long as one lasts, and was renewed just now', async () => {
    const timings = { ...FAST, leaseMs: LEASE_MS }
    const node = await TestNode.start(await postgres.database(), 'one', { timings })
    onTestFinished(() => node.stop())
    const { lease } = node.cluster
    expect([lease.state, lease.isFirm]).toEqual(['held', false])
    await eventually(() => expect(lease.isFirm).toBe(true))
    node.proxy.refuse()
    node.proxy.cut()
    // Before its end: others that have lost PostgreSQL, too, must not take it for one that has it.
    await eventually(() => expect(lease.isFirm).toBe(false))
    expect(lease.state).toBe('held')
    await eventually(() => expect(lease.state).toBe('overdue'))
    node.proxy.heal()
    await eventually(() => expect(lease.state).toBe('held'))
    // When it is back for all, the first to have it says nothing against the others.
    expect(lease.isFirm).toBe(false)
  })
})
