import pg from 'pg'
import { afterAll, beforeAll, describe, expect, it, onTestFinished } from 'vitest'
import { systemClock } from '../../../src/base/clock.ts'
import { Secret } from '../../../src/base/secret.ts'
import { forgetNode } from '../../../src/gateway/cluster/nodes/forgotten-nodes.ts'
import { SharedMaterial } from '../../../src/gateway/cluster/nodes/shared-material.ts'
import { SITE_STEPS } from '../../../src/gateway/cluster/open-site.ts'
import { PostgresConnection } from '../../../src/gateway/cluster/postgres/postgres-connection.ts'
import { PostgresSession } from '../../../src/gateway/cluster/postgres/postgres-session.ts'
import { migrateSchema } from '../../../src/gateway/cluster/postgres/schema.ts'
import {
  append,
  keepRecords,
  readHead,
} from '../../../src/gateway/cluster/replication/record-log.ts'
import { SiteOrders } from '../../../src/gateway/cluster/site-orders.ts'
import type { DatabaseAddress } from '../../../src/settings/database-url.ts'
import { captureLog } from '../../helpers/captured-log.ts'
import { GatewayCluster } from '../../helpers/gateway-cluster.ts'
import { hasPostgres, TestPostgres } from '../../helpers/postgres.ts'
import { bind, connectSdk } from '../../helpers/running-gateway.ts'

const OPEN = 'GRANT CREATE ON SCHEMA public TO PUBLIC'

describe.skipIf(!hasPostgres)('other roles of the server', () => {
  let postgres: TestPostgres
  beforeAll(async () => {
    postgres = await TestPostgres.start()
    await postgres.query("CREATE ROLE mallory LOGIN PASSWORD 'x'")
    await postgres.query("CREATE ROLE owner LOGIN PASSWORD 'x'")
  })
  afterAll(() => postgres?.remove())

  const serverOf = (address: DatabaseAddress) => ({
    ...{ address, password: address.password, passwordPath: undefined },
  })
  async function connect({ host, port, database, ...address }: DatabaseAddress, user?: string) {
    const password = user === undefined ? address.password?.reveal() : 'x'
    const role = user ?? address.user
    const client = new pg.Client({ host, port, database, user: role, password })
    await client.connect()
    onTestFinished(() => client.end())
    return client
  }

  /** As PostgreSQL 14 has it, and what pg_upgrade makes of one. */
  const openTo = async (address: DatabaseAddress) => (await connect(address)).query(OPEN)
  const migrate = (address: DatabaseAddress) =>
    migrateSchema({ server: serverOf(address), name: 'schema' }, SITE_STEPS)
  const openSession = async (address: DatabaseAddress) => {
    const session = await PostgresSession.open({ server: serverOf(address), name: 'test' })
    onTestFinished(() => session.close())
    return session
  }

  /** For each function of ours one that takes text in place of everything. */
  async function overload(address: DatabaseAddress): Promise<readonly string[]> {
    const { rows } = await (await connect(address)).query<{ name: string; count: number }>(
      `SELECT proname AS name, pronargs AS count FROM pg_proc
       WHERE pronamespace = 'public'::regnamespace AND pronargs > 0`,
    )
    const mallory = await connect(address, 'mallory')
    for (const { name, count } of rows) {
      const types = Array.from({ length: count }, () => 'text').join(', ')
      // One of the same types is ours, and can only be called.
      await mallory
        .query(
          `CREATE FUNCTION ${name}(${types}) RETURNS text LANGUAGE plpgsql AS $$
           BEGIN RAISE EXCEPTION 'this is of mallory'; END $$`,
        )
        .catch((error) => expect(error.code).toBe('42723'))
    }
    return rows.map(({ name }) => name)
  }

  it('do not have their functions called in place of those of the site', async () => {
    const address = await postgres.database()
    await migrate(address)
    await openTo(address)
    const ours = ['append_records', 'keep_records', 'change_claims', 'forget_node']
    const orders = ['claim_certificate', 'conclude_certificate']
    expect(await overload(address)).toEqual(expect.arrayContaining([...ours, ...orders]))
    const session = await openSession(address)
    const { n, mark, schema } = await readHead(session)
    const proposal = { mark: crypto.randomUUID(), node: 'nd_1', epoch: undefined, schema }
    const rows = [{ table: 't', key: ['1'], row: { id: '1' } }]
    expect(await append(session, { ...proposal, seen: { n, mark }, rows })).toEqual({
      outcome: 'taken',
      n: n + 1,
    })
    await keepRecords(session, rows)
    expect(await forgetNode(session, 'nd_2')).toBe('unknown')

    const { log } = captureLog()
    const common = { server: serverOf(address), log, clock: systemClock }
    const connection = new PostgresConnection({ ...common, name: 'test' })
    connection.start()
    onTestFinished(() => connection.stop())
    const material = new SharedMaterial(connection)
    const book = new SiteOrders({ ...common, connection, reads: connection, material })
    book.start()
    onTestFinished(() => book.stop())
    await session.query(
      `INSERT INTO nodes (id, epoch, beat, standing, facts) VALUES ('nd_1', 1, 1, 'serving', '{}')`,
    )
    book.orderAs({ nodeId: 'nd_1', epoch: 1, state: 'held', standing: 'serving' })
    const id = { domainId: 'rd_1', authority: 'ca.test', keyType: 'ecdsa' } as const
    const claimed = await book.claim(id, 0)
    if (!('order' in claimed)) throw new Error('it was not claimed')
    await claimed.order.conclude({ error: 'no' })
  })

  it('do not have them called by a gateway that runs, either', async () => {
    const address = await postgres.database()
    const one = await GatewayCluster.open(address).start()
    await openTo(address)
    await overload(address)
    await bind(await connectSdk(one), 'cam.site.test')
    expect(one.logText()).not.toContain('of mallory')
  })

  it('are no reason to begin a site where they can create what it calls', async () => {
    const address = await postgres.database()
    await openTo(address)
    await expect(migrate(address)).rejects.toMatchObject({
      code: 'database-open',
      message: expect.stringContaining('REVOKE CREATE ON SCHEMA public FROM PUBLIC'),
    })
    await (await connect(address)).query('REVOKE CREATE ON SCHEMA public FROM PUBLIC')
    expect(await migrate(address)).toHaveLength(SITE_STEPS.length)
  })

  it('are told of where a site has been for long', async () => {
    const address = await postgres.database()
    await migrate(address)
    await openTo(address)
    const gateway = await GatewayCluster.open(address).start()
    expect(gateway.logText()).toContain('REVOKE CREATE ON SCHEMA public FROM PUBLIC')
    expect(gateway.logText()).toContain('REVOKE ALL ON DATABASE')
    const closed = await postgres.database()
    await (await connect(closed)).query(`REVOKE ALL ON DATABASE ${closed.database} FROM PUBLIC`)
    expect((await GatewayCluster.open(closed).start()).logText()).not.toContain('REVOKE')
  })

  it.each([
    [
      'a function in place of one of PostgreSQL',
      "CREATE FUNCTION abs(text) RETURNS int LANGUAGE sql AS 'SELECT 1'",
    ],
    [
      'a function in place of the first that is called',
      `CREATE FUNCTION pg_advisory_xact_lock(text) RETURNS text LANGUAGE plpgsql AS $$
       BEGIN RAISE EXCEPTION 'this is of mallory'; END $$`,
    ],
    [
      'a function in place of one of the site',
      "CREATE FUNCTION now_ms(text) RETURNS int LANGUAGE sql AS 'SELECT 1'",
    ],
    [
      'an operator',
      `CREATE FUNCTION mine(jsonb, jsonb) RETURNS text LANGUAGE sql AS $$SELECT 'x'$$;
       CREATE OPERATOR ->> (FUNCTION = mine, LEFTARG = jsonb, RIGHTARG = jsonb)`,
    ],
  ])('end the start of a gateway with %s', async (_what, sql) => {
    const address = await postgres.database()
    await migrate(address)
    await openTo(address)
    await (await connect(address, 'mallory')).query(sql)
    await (await connect(address)).query('REVOKE CREATE ON SCHEMA public FROM PUBLIC')
    await expect(migrate(address)).rejects.toMatchObject({ code: 'database-open' })
  })

  it('end the start of a gateway with the table in which it looks for what was applied', async () => {
    const address = await postgres.database()
    await openTo(address)
    const mallory = await connect(address, 'mallory')
    await mallory.query('CREATE TABLE schema_steps (id text PRIMARY KEY)')
    await (await connect(address)).query('REVOKE CREATE ON SCHEMA public FROM PUBLIC')
    await expect(migrate(address)).rejects.toMatchObject({
      code: 'database-open',
      message: expect.stringContaining('schema_steps'),
    })
  })

  it('may have functions of other names beside those of the site', async () => {
    const address = await postgres.database()
    await openTo(address)
    const mallory = await connect(address, 'mallory')
    await mallory.query("CREATE FUNCTION theirs(int) RETURNS int LANGUAGE sql AS 'SELECT 1'")
    await (await connect(address)).query('REVOKE CREATE ON SCHEMA public FROM PUBLIC')
    expect(await migrate(address)).toHaveLength(SITE_STEPS.length)
  })

  it('have no say in a schema of the own of a role that is no superuser', async () => {
    const address = await postgres.database()
    await openTo(address)
    await (await connect(address)).query('CREATE SCHEMA AUTHORIZATION owner')
    const mallory = await connect(address, 'mallory')
    await mallory.query("CREATE FUNCTION abs(text) RETURNS int LANGUAGE sql AS 'SELECT 1'")
    const own = { ...address, user: 'owner', password: new Secret('x') }
    expect(await migrate(own)).toHaveLength(SITE_STEPS.length)
    const session = await openSession(own)
    expect(await session.query('SHOW search_path')).toEqual([{ search_path: 'owner, pg_temp' }])
    expect(await session.query('SELECT count(*) FROM owner.nodes')).toEqual([{ count: 0 }])
  })
})
