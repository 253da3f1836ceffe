import { afterAll, beforeAll, describe, expect, it, onTestFinished } from 'vitest'
import { systemClock } from '../../../../src/base/clock.ts'
import { createLogger } from '../../../../src/base/logger.ts'
import { ClusterFeed } from '../../../../src/gateway/cluster/nodes/cluster-feed.ts'
import { PostgresConnection } from '../../../../src/gateway/cluster/postgres/postgres-connection.ts'
import { PostgresSession } from '../../../../src/gateway/cluster/postgres/postgres-session.ts'
import { captureLog } from '../../../helpers/captured-log.ts'
import { claimOf, FAST, nodeFacts, TestNode } from '../../../helpers/cluster-node.ts'
import { eventually } from '../../../helpers/eventually.ts'
import { hasPostgres, TestPostgres } from '../../../helpers/postgres.ts'

describe.skipIf(!hasPostgres)('ClusterFeed', () => {
  let postgres: TestPostgres
  beforeAll(async () => {
    postgres = await TestPostgres.shared()
  })
  afterAll(() => postgres?.remove())

  /** Two nodes that never give each other up, the log of the second one, and its looks so far. */
  const startTwo = async () => {
    const address = await postgres.database()
    const captured = captureLog()
    let looks = 0
    let broken: Error | undefined
    const options = { timings: { ...FAST, leaseMs: 60_000 } }
    const start = async (id: string, more = {}) => {
      const node = await TestNode.start(address, id, { ...options, ...more })
      onTestFinished(() => node.stop())
      return node
    }
    const one = await start('one')
    const two = await start('two', {
      log: captured.log,
      onNodes: () => {
        looks += 1
        if (broken) throw broken
      },
    })
    const session = await PostgresSession.open({ server: one.server, name: 'test' })
    onTestFinished(() => session.close())
    return {
      ...{ one, two, session },
      warnings: (text: string) =>
        captured.lines.filter(({ level, msg }) => level === 'warn' && String(msg).includes(text)),
      text: () => captured.text(),
      count: () => looks,
      breakWith: (error: Error | undefined) => {
        broken = error
      },
      /** So many more, each of which began after now. */
      looked: async (times: number) => {
        const from = looks + 1
        await eventually(() => expect(looks).toBeGreaterThanOrEqual(from + times))
      },
    }
  }

  /** On a busy machine the database may be too slow for one try. */
  const claim = (node: TestNode, host: string) => {
    const wanted = claimOf(host)
    return eventually(() => node.cluster.claims.claim(wanted))
  }

  it('leaves out rows that it does not understand, and names them once', async () => {
    const { one, two, session, warnings, looked } = await startTwo()
    const odd = claimOf('odd.example')
    await session.query(
      "INSERT INTO nodes (id, epoch, beat, standing, facts) VALUES ('strange', 1, 1, 'serving', '{}')",
    )
    await session.query('SELECT change_claims($1, 1, $2, $3)', [
      ...['one', 'a mark'],
      JSON.stringify([{ do: 'claim', ...odd.key, facts: { endpointId: 'tn_odd' } }]),
    ])
    await claim(one, 'a.example')
    await eventually(() => expect(two.cluster.table.find('https', 'a.example')).toBeDefined())
    const ids = two.cluster.nodes.all().map(({ id }) => id)
    expect(ids.toSorted()).toEqual(['one', 'two'])
    expect(two.cluster.table.find('https', 'odd.example')).toBeUndefined()
    await looked(3)
    const named = () => warnings('cannot be parsed').flatMap(({ rows }) => rows)
    expect(named().toSorted()).toEqual(['claim https odd.example', 'node strange'])
    // Understood by now, and odd again: that is another case of it.
    const facts = JSON.stringify(nodeFacts({ name: 'strange' }))
    await session.query("UPDATE nodes SET facts = $1 WHERE id = 'strange'", [facts])
    await eventually(() => expect(two.cluster.nodes.find('strange')).toBeDefined())
    await session.query("UPDATE nodes SET facts = '{}' WHERE id = 'strange'")
    await eventually(() => expect(named()).toHaveLength(3))
  })

  it('says why it cannot go on, once for each reason, and sees all when it can', async () => {
    const { one, two, warnings, text, breakWith, looked } = await startTwo()
    breakWith(new Error('first'))
    await claim(one, 'a.example')
    await looked(3)
    expect(warnings('cannot be read')).toMatchObject([{ err: { message: 'first' } }])
    breakWith(new Error('second'))
    await eventually(() => expect(warnings('cannot be read')).toHaveLength(2))
    expect(two.cluster.table.find('https', 'a.example')).toBeUndefined()
    breakWith(undefined)
    await eventually(() => expect(two.cluster.table.find('https', 'a.example')).toBeDefined())
    await eventually(() => expect(text()).toContain('can be read again'))
    breakWith(new Error('second'))
    await eventually(() => expect(warnings('cannot be read')).toHaveLength(3))
  })

  it('looks no more than 50 times a second, however often somebody notifies', async () => {
    const { session, looked, count } = await startTwo()
    await looked(1)
    const [from, since] = [count(), performance.now()]
    while (performance.now() - since < 1_000) {
      await session.query("SELECT pg_notify('claims', random()::text)")
    }
    expect(count() - from).toBeLessThanOrEqual((performance.now() - since) / 20 + 2)
  })

  it('begins anew when it lacks one of the changes that its node has made since the last look', async () => {
    const { one, session } = await startTwo()
    const parts = { log: createLogger('silent'), clock: systemClock }
    const connection = new PostgresConnection({ server: one.server, name: 'test', ...parts })
    onTestFinished(() => connection.stop())
    connection.start()
    const looks: boolean[] = []
    const onClaims = (_claims: unknown, isAll: boolean) => looks.push(isAll)
    const feed = new ClusterFeed({ connection, onNodes: () => {}, onClaims, ...parts })
    const change = async (from: number, to: number) => {
      await session.query(
        `INSERT INTO claim_changes SELECT n, 'change ' || n FROM generate_series(${from}, ${to}) n`,
      )
      await session.query(`UPDATE claim_head SET number = ${to}`)
      for (let n = from; n <= to; n += 1) feed.expect(`change ${n}`)
    }
    await eventually(() => feed.poll())
    await change(1, 10)
    await feed.poll()
    expect(looks).toEqual([true])
    await change(11, 20)
    await session.query('DELETE FROM claim_changes WHERE number = 15')
    await feed.poll()
    await feed.poll()
    expect(looks).toEqual([true, true])
    // More than it keeps in mind.
    await change(21, 1_021)
    await feed.poll()
    await feed.poll()
    expect(looks).toEqual([true, true, true])
  })
})
