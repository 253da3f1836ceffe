import { afterAll, beforeAll, describe, expect, it, onTestFinished } from 'vitest'
import { systemClock } from '../../../src/base/clock.ts'
import type { CertificateId, SiteOrder } from '../../../src/gateway/certificates/acme/order-book.ts'
import type { NodeLease } from '../../../src/gateway/cluster/nodes/node-lease.ts'
import { SharedMaterial } from '../../../src/gateway/cluster/nodes/shared-material.ts'
import { SITE_STEPS } from '../../../src/gateway/cluster/open-site.ts'
import { PostgresConnection } from '../../../src/gateway/cluster/postgres/postgres-connection.ts'
import { migrateSchema } from '../../../src/gateway/cluster/postgres/schema.ts'
import { ASKED, SiteOrders } from '../../../src/gateway/cluster/site-orders.ts'
import { captureLog } from '../../helpers/captured-log.ts'
import { ChaosProxy } from '../../helpers/chaos-proxy.ts'
import { eventually } from '../../helpers/eventually.ts'
import { PausableClock } from '../../helpers/pausable-clock.ts'
import { hasPostgres, TestPostgres } from '../../helpers/postgres.ts'

const HOUR_MS = 3_600_000
const idOf = (domainId: string): CertificateId => ({
  ...{ domainId, authority: 'ca.test', keyType: 'ecdsa' },
})
const A = idOf('rd_a')
type Writable = { -readonly [Fact in 'nodeId' | 'epoch' | 'state' | 'standing']: NodeLease[Fact] }

describe.skipIf(!hasPostgres)('the orders of a site', () => {
  let postgres: TestPostgres
  beforeAll(async () => {
    postgres = await TestPostgres.shared()
  })
  afterAll(() => postgres?.remove())

  const captured = captureLog()
  const { log } = captured
  async function openDatabase() {
    const address = await postgres.database()
    const server = { address, password: address.password, passwordPath: undefined }
    await migrateSchema({ server, name: 'schema' }, SITE_STEPS)
    const connection = new PostgresConnection({ server, name: 'test', log, clock: systemClock })
    connection.start()
    onTestFinished(() => connection.stop())
    const material = new SharedMaterial(connection)
    /** A node with its lease, and what it knows of orders. */
    const node = async (nodeId: string, clock = new PausableClock()) => {
      const proxy = await ChaosProxy.start({ host: address.host, port: address.port })
      const through = { ...server, address: { ...address, ...proxy.address } }
      const own = ['claims', 'follower'].map(
        (name) => new PostgresConnection({ server: through, name, log, clock }),
      )
      for (const it of own) it.start()
      onTestFinished(() => Promise.all(own.map((it) => it.stop())).then(() => {}))
      const [changes, reads] = own as [PostgresConnection, PostgresConnection]
      const parts = { connection: changes, reads, material, log, clock }
      const orders = new SiteOrders({ ...parts, lookMs: 20 })
      orders.start()
      onTestFinished(() => orders.stop())
      await connection.query(
        `INSERT INTO nodes (id, epoch, beat, standing, facts) VALUES ($1, 1, 1, 'serving', '{}')`,
        [nodeId],
      )
      const lease: Writable = { nodeId, epoch: 1, state: 'held', standing: 'serving' }
      orders.orderAs(lease)
      /** Others give it up, and it comes back in another epoch. */
      const fence = async () => {
        await connection.query('UPDATE nodes SET epoch = epoch + 1 WHERE id = $1', [nodeId])
        lease.epoch += 1
      }
      const knows = (id: CertificateId, check: (it: ReturnType<typeof orders.find>) => void) =>
        eventually(() => check(orders.find(id)))
      const claim = (id = A) => orders.claim(id, orders.find(id).number)
      return { orders, clock, proxy, fence, knows, claim, lease }
    }
    return { connection, node }
  }

  type Node = Awaited<ReturnType<Awaited<ReturnType<typeof openDatabase>>['node']>>
  const ordered = async ({ claim }: Node, id = A): Promise<SiteOrder> => {
    const claimed = await claim(id)
    if ('order' in claimed) return claimed.order
    throw new Error(`it has to wait for ${claimed.waitMs} ms`)
  }
  const waitOf = async ({ claim }: Node, id = A): Promise<number> => {
    const claimed = await claim(id)
    return 'waitMs' in claimed ? claimed.waitMs : Number.NaN
  }

  it('are of one node at a time, which tells all what came of it', async () => {
    const { node } = await openDatabase()
    const [one, two] = [await node('nd_1'), await node('nd_2')]
    const order = await ordered(one)
    // What it knows is older than the claim, and then it is not.
    expect(await waitOf(two)).toBe(100)
    await two.knows(A, ({ startedAt }) => expect(startedAt).toBeGreaterThan(0))
    expect(await waitOf(two)).toBe(100)
    expect(await waitOf(one)).toBe(100)
    await order.publish('a.acme.test', 'value')
    for (const { orders } of [one, two]) {
      const { valuesOf } = await orders.zone('acme.test')
      expect([valuesOf('a.acme.test'), valuesOf('b.acme.test')]).toEqual([['value'], []])
    }
    await order.conclude({ pem: 'PEM' })
    await two.knows(A, ({ pem }) => expect(pem).toBe('PEM'))
    expect((await two.orders.zone('acme.test')).valuesOf('a.acme.test')).toEqual([])
    // Whoever does not like it orders no other at once.
    expect(await waitOf(two)).toBeGreaterThan(500_000)
    await expect(order.publish('a.acme.test', 'more')).rejects.toThrow('took over the order')
    await one.orders.forget('rd_a')
    await expect(order.requireOwn()).rejects.toThrow('took over the order')
  })

  it('are taken over from a node that was given up: at once the first time, later the next', async () => {
    const { node } = await openDatabase()
    const [one, two] = [await node('nd_1'), await node('nd_2')]
    const lost = await ordered(one)
    const bothKnow = async (number: number) => {
      for (const it of [one, two]) {
        await it.knows(A, (record) => expect(record.number).toBe(number))
      }
    }
    await bothKnow(1)
    await one.fence()
    const second = await ordered(two)
    await expect(lost.requireOwn()).rejects.toThrow('took over the order')
    await expect(lost.publish('a.acme.test', 'value')).rejects.toThrow('took over the order')
    // What the lost one has is not kept, and ends nothing.
    await lost.conclude({ pem: 'LOST' })
    await second.requireOwn()
    await bothKnow(2)
    await two.fence()
    expect(await waitOf(one)).toBeGreaterThanOrEqual(60_000)
    await one.knows(A, (record) => {
      expect(record).toMatchObject({ pem: undefined, error: expect.stringContaining('ended') })
      expect(record.retriesAt).toBeGreaterThan(Date.now() + 50_000)
      expect(record.failingSince).toBeLessThanOrEqual(Date.now() + 1_000)
    })
  })

  it('are taken over from a node that was forgotten, and keep nobody from forgetting it', async () => {
    const { node, connection } = await openDatabase()
    const [one, two] = [await node('nd_1'), await node('nd_2')]
    const lost = await ordered(one)
    await two.knows(A, ({ number }) => expect(number).toBe(1))
    await connection.query(
      "UPDATE nodes SET standing = 'lost', epoch = epoch + 1 WHERE id = 'nd_1'",
    )
    const [row] = await connection.query("SELECT forget_node('nd_1', 'mark') AS became")
    expect(row).toEqual({ became: 'forgotten' })
    await (await ordered(two)).requireOwn()
    await expect(lost.requireOwn()).rejects.toThrow('took over the order')
    // One that was forgotten is in the way of none of the four.
    for (const n of [1, 2, 3]) await ordered(two, idOf(`rd_${n}`))
  })

  it('are found by the names of their challenges alone, however many certificates there are', async () => {
    const { node, connection } = await openDatabase()
    const one = await node('nd_1')
    await connection.query(
      `INSERT INTO certificates (domain, authority, key_type, number, pem)
       SELECT 'rd_' || n, 'ca.test', 'ecdsa', n, repeat('x', 1000) FROM generate_series(1, 5000) n`,
    )
    await connection.query('ANALYZE certificates')
    await (await ordered(one, idOf('rd_new'))).publish('a.acme.test', 'value')
    const plan = await connection.query(`EXPLAIN ${ASKED}`)
    expect(JSON.stringify(plan)).toContain('certificates_asked')
    expect((await one.orders.zone('acme.test')).valuesOf('a.acme.test')).toEqual(['value'])
  })

  it('keep the time of the first failure, and go on after one that was given up without another', async () => {
    const { node } = await openDatabase()
    const one = await node('nd_1')
    await (await ordered(one)).conclude({ error: 'closed' })
    await one.knows(A, ({ error }) => expect(error).toBe('closed'))
    const { failingSince, retriesAt = 0 } = one.orders.find(A)
    expect(retriesAt).toBeGreaterThan(Date.now() + 50_000)
    await one.orders.retry(A)
    await one.knows(A, ({ retriesAt }) => expect(retriesAt).toBe(0))
    await (await ordered(one)).conclude({ error: 'closed again' })
    await one.knows(A, ({ error }) => expect(error).toBe('closed again'))
    expect(one.orders.find(A).failingSince).toBe(failingSince)
    const b = idOf('rd_b')
    await (await ordered(one, b)).conclude({})
    await one.knows(b, ({ number }) => expect(number).toBeGreaterThan(0))
    await eventually(async () => expect(await waitOf(one, b)).toBeNaN())
  })

  it('are of no node whose lease is over, whether it knows of that or not, or that drains', async () => {
    const { node } = await openDatabase()
    const one = await node('nd_1')
    one.lease.standing = 'draining'
    expect(await waitOf(one)).toBe(100)
    one.lease.standing = 'serving'
    one.lease.state = 'overdue'
    expect(await waitOf(one)).toBe(100)
    one.lease.state = 'held'
    await one.fence()
    one.lease.epoch -= 1
    expect(await waitOf(one)).toBe(100)
    one.lease.epoch += 1
    await ordered(one)
  })

  it('are four at once for all, and none of a node whose clock is wrong', async () => {
    const { node } = await openDatabase()
    const [one, two] = [await node('nd_1'), await node('nd_2')]
    for (const offMs of [HOUR_MS, -HOUR_MS]) {
      two.clock.stepWall(offMs)
      expect(await waitOf(two)).toBe(100)
      two.clock.stepWall(-offMs)
    }
    for (const n of [1, 2]) {
      await ordered(one, idOf(`rd_1${n}`))
      await ordered(two, idOf(`rd_2${n}`))
    }
    expect(await waitOf(one)).toBe(100)
    await one.fence()
    await ordered(two)
  })

  it('are concluded when the database is back', async () => {
    const { node } = await openDatabase()
    const [one, two] = [await node('nd_1'), await node('nd_2')]
    const order = await ordered(one)
    one.proxy.refuse()
    one.proxy.cut()
    const concluded = order.conclude({ pem: 'PEM' })
    await expect(one.claim(idOf('rd_b'))).rejects.toThrow('The database cannot be reached')
    expect((await one.orders.zone('acme.test')).valuesOf('a.acme.test')).toBeUndefined()
    one.proxy.heal()
    await concluded
    await two.knows(A, ({ pem }) => expect(pem).toBe('PEM'))
  })

  it('are concluded as failed when what came of them cannot be kept', async () => {
    const { node } = await openDatabase()
    const one = await node('nd_1')
    await (await ordered(one)).conclude({ pem: 'PEM\0' })
    await one.knows(A, ({ pem, error }) => {
      expect([pem, error]).toEqual([undefined, expect.stringContaining('could not be saved')])
    })
  })

  it('are asked for by one of many while there are as many as may be', async () => {
    const { node, connection } = await openDatabase()
    const one = await node('nd_1')
    for (const n of [1, 2, 3, 4]) await ordered(one, idOf(`rd_${n}`))
    const rest = Array.from({ length: 1_500 }, (_, n) => idOf(`rd_more_${n}`))
    // More at once than a connection takes; none is refused, and none is granted.
    const waits = await Promise.all(rest.map((id) => waitOf(one, id)))
    for (const waitMs of waits) expect(waitMs).toBeGreaterThan(0)
    await connection.query('DELETE FROM certificates')
    await eventually(() => ordered(one))
  })

  it('have one key of the account, that of who came first', async () => {
    const { node } = await openDatabase()
    const [one, two] = [await node('nd_1'), await node('nd_2')]
    const keys = await Promise.all([
      one.orders.accountKey(async () => 'key of one'),
      two.orders.accountKey(async () => 'key of two'),
    ])
    expect(keys[0]).toBe(keys[1])
    expect(await two.orders.accountKey(() => Promise.reject(new Error('asked again')))).toBe(
      keys[0],
    )
  })

  it('say once that the clock is wrong, and what to do, and that it is right again', async () => {
    const { node } = await openDatabase()
    const one = await node('nd_1')
    const { text } = captured
    const clock = 'differs from PostgreSQL by more than 5 minutes'
    const timesTold = () => text().split(clock).length - 1
    const before = timesTold()
    one.clock.stepWall(HOUR_MS)
    for (const id of [A, idOf('rd_b'), A]) {
      expect(await one.claim(id)).toMatchObject({ problem: expect.stringContaining(clock) })
    }
    expect(timesTold()).toBe(before + 1)
    one.clock.stepWall(-HOUR_MS)
    await ordered(one)
    expect(text()).toContain('the clock of this gateway matches PostgreSQL again')
    // Of another one's order nothing is known of the clock.
    expect(await one.claim()).toEqual({ waitMs: 100, problem: undefined })
  })

  it('are read in parts, and keys of domains that were given up are kept by nobody', async () => {
    const { connection, node } = await openDatabase()
    const one = await node('nd_1')
    await connection.query(
      `INSERT INTO certificates (domain, authority, key_type, number, pem)
       SELECT 'rd_' || n, 'ca.test', 'ecdsa', n, 'PEM ' || n FROM generate_series(1, 250) n`,
    )
    await connection.query('UPDATE certificate_head SET number = 250')
    const pemOf = (n: number) => one.orders.find(idOf(`rd_${n}`)).pem
    await eventually(() => {
      expect([1, 100, 101, 200, 250].map(pemOf)).toEqual(
        [1, 100, 101, 200, 250].map((n) => `PEM ${n}`),
      )
    })
    await one.orders.forget('rd_20')
    expect([pemOf(20), pemOf(200)]).toEqual([undefined, 'PEM 200'])
    expect(await connection.query("SELECT 1 FROM certificates WHERE domain = 'rd_20'")).toEqual([])
  })

  it('follow a database that was put back from an older copy', async () => {
    const { node, connection } = await openDatabase()
    const one = await node('nd_1')
    await (await ordered(one)).conclude({ pem: 'PEM' })
    await one.knows(A, ({ pem }) => expect(pem).toBe('PEM'))
    await connection.query('DELETE FROM certificates')
    await connection.query('UPDATE certificate_head SET number = 0')
    await one.knows(A, ({ number }) => expect(number).toBe(0))
    // The same, with as many changes in it.
    await (await ordered(one)).conclude({ pem: 'PEM' })
    await one.knows(A, ({ pem }) => expect(pem).toBe('PEM'))
    await connection.query('DELETE FROM certificates')
    // Refused at first, on what it still knows; whoever wants one asks again.
    await eventually(() => ordered(one))
    await one.knows(A, ({ number }) => expect(number).toBeGreaterThan(0))
    // With others that change all the time: what is new says nothing of it.
    await connection.query('DELETE FROM certificates')
    const bumping = new AbortController()
    const bumps = (async () => {
      while (!bumping.signal.aborted) {
        await connection.query('UPDATE certificate_head SET number = number + 1')
      }
    })()
    await eventually(() => ordered(one)).finally(() => bumping.abort())
    await bumps
  })
})
