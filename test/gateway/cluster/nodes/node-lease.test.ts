import { afterAll, beforeAll, describe, expect, it, onTestFinished } from 'vitest'
import { createDeferred } from '../../../../src/base/deferred.ts'
import { LEASE_TIMINGS, NodeLease } from '../../../../src/gateway/cluster/nodes/node-lease.ts'
import type { PostgresConnection } from '../../../../src/gateway/cluster/postgres/postgres-connection.ts'
import type { Row } from '../../../../src/gateway/cluster/postgres/postgres-session.ts'
import { captureLog } from '../../../helpers/captured-log.ts'
import { FAST, nodeFacts, TestNode } from '../../../helpers/cluster-node.ts'
import { eventually } from '../../../helpers/eventually.ts'
import { ManualClock } from '../../../helpers/manual-clock.ts'
import { hasPostgres, TestPostgres } from '../../../helpers/postgres.ts'

const LEASE_MS = 10_000

describe.skipIf(!hasPostgres)('a lease', () => {
  let postgres: TestPostgres
  beforeAll(async () => {
    postgres = await TestPostgres.shared()
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

describe('the end of a lease', () => {
  const { beatMs, leaseMs, retryMs } = LEASE_TIMINGS
  const nothing = () => {}

  /** A node that has joined a moment ago, and what its database says to each beat from then on. */
  async function join(beats: readonly Promise<Row[]>[]) {
    const left = [...beats]
    const statements = {
      query: async (sql: string) => (sql.startsWith('INSERT') ? [{ epoch: 1 }] : []),
    }
    const connection = {
      transaction: (work: (its: typeof statements) => unknown) => work(statements),
      query: () => left.shift() ?? Promise.reject(new Error('database connection lost')),
    }
    const clock = new ManualClock()
    const lease = new NodeLease({
      ...{ nodeId: 'one', facts: nodeFacts(), log: captureLog().log, clock },
      ...{ onRejoined: nothing, onReplaced: nothing, onForgotten: nothing, onSettled: nothing },
      connection: connection as unknown as PostgresConnection,
    })
    await lease.start()
    onTestFinished(() => lease.stop())
    return { lease, clock }
  }

  it('is 5 % sooner than others would take the names', async () => {
    const { lease, clock } = await join([])
    await clock.advance(leaseMs * 0.94)
    expect(lease.state).toBe('held')
    await clock.advance(leaseMs * 0.02)
    expect(lease.state).toBe('overdue')
  })

  it('counts from when the beat was sent, however late it was answered', async () => {
    const beat = createDeferred<Row[]>()
    const { lease, clock } = await join([beat.promise])
    await clock.advance(beatMs + 2_000)
    beat.resolve([{ beat: 2 }])
    await clock.advance(leaseMs * 0.94 - 2_000)
    expect(lease.state).toBe('held')
    await clock.advance(leaseMs * 0.02)
    expect(lease.state).toBe('overdue')
  })

  it('is known after a stop of the machine only by a try that began after that', async () => {
    const [before, after] = [createDeferred<Row[]>(), createDeferred<Row[]>()]
    const { lease, clock } = await join([before.promise, after.promise])
    after.promise.catch(nothing)
    onTestFinished(() => after.reject(new Error('the test is over')))
    await clock.advance(beatMs)
    clock.stepWall(leaseMs)
    expect(lease.state).toBe('unsure')
    before.reject(new Error('the connection was lost'))
    await clock.advance(100)
    expect(lease.state).toBe('unsure')
    after.reject(new Error('database connection lost'))
    await clock.advance(100)
    expect(lease.state).toBe('overdue')
  })

  it('is told once as what it is where the others have become too new to join again', async () => {
    const newer = nodeFacts({ name: 'two', version: '9.0.0', protocol: 9, oldestProtocol: 9 })
    const row = { id: 'two', epoch: 1, beat: 1, standing: 'serving', since: 1, facts: newer }
    const others: Row[] = []
    const statements = {
      query: async (sql: string) => {
        if (sql.startsWith('INSERT')) return [{ epoch: 1 }]
        return sql.includes('id <> $1') ? others : []
      },
    }
    const connection = {
      transaction: (work: (its: typeof statements) => unknown) => work(statements),
      query: async () => [],
    }
    const { log, lines } = captureLog()
    const clock = new ManualClock()
    const lease = new NodeLease({
      ...{ nodeId: 'one', facts: nodeFacts(), log, clock },
      ...{ onRejoined: nothing, onReplaced: nothing, onForgotten: nothing, onSettled: nothing },
      connection: connection as unknown as PostgresConnection,
    })
    await lease.start()
    onTestFinished(() => lease.stop())
    others.push(row)
    const told = () => lines.filter(({ level }) => level === 'error').map(({ reason }) => reason)
    await clock.advance(beatMs)
    await eventually(() => expect(told()).toHaveLength(1))
    for (let tries = 0; tries < 5; tries += 1) {
      expect(lease.state).toBe('unfit')
      await clock.advance(retryMs)
    }
    expect(told()).toEqual([expect.stringContaining('the node two is 9.0.0')])
    expect(lines.filter(({ msg }) => /marked this node as lost/.test(`${msg}`))).toHaveLength(1)
    others.pop()
    await clock.advance(retryMs)
    await eventually(() => expect(lease.state).toBe('held'))
  })
})
