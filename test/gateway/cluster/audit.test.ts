import { afterAll, beforeAll, describe, expect, it } from 'vitest'
import { PostgresSession } from '../../../src/gateway/cluster/postgres/postgres-session.ts'
import { GatewayCluster } from '../../helpers/gateway-cluster.ts'
import { managed } from '../../helpers/managed-gateway.ts'
import { hasPostgres, TestPostgres } from '../../helpers/postgres.ts'

describe.skipIf(!hasPostgres)('the audit trail of gateways on one PostgreSQL', () => {
  let postgres: TestPostgres
  beforeAll(async () => {
    postgres = await TestPostgres.shared()
  })
  afterAll(() => postgres?.remove())

  it('has the row of a change in the transaction of the change', async () => {
    const address = await postgres.database()
    const apiListen = { host: '127.0.0.1', port: 0 }
    const { call } = await managed(await GatewayCluster.open(address).start({ apiListen }))
    const server = { address, password: address.password, passwordPath: undefined }
    /** The tables of each transaction since an entry of the log, without what is noted of keys. */
    const since = async (n: number) => {
      const session = await PostgresSession.open({ server, name: 'test' })
      try {
        const rows = await session.query<{ n: number; tables: string[] }>(
          'SELECT n, tables FROM record_log WHERE n > $1 ORDER BY n',
          [n],
        )
        const last = rows.at(-1)?.n ?? n
        const tables = rows.map((row) => [...new Set(row.tables)].sort())
        return { last, tables: tables.filter((it) => it.join() !== 'api_keys') }
      } finally {
        session.close()
      }
    }
    let { last } = await since(0)
    const entry = async (method: string, path: string, body?: object) => {
      const answer = await call(method, path, body)
      expect(answer.status).toBeLessThan(300)
      const { tables, last: newest } = await since(last)
      last = newest
      return { tables, body: answer.body }
    }
    const made = await entry('POST', '/ip_policies', { description: 'a' })
    const path = `/ip_policies/${made.body.id}`
    const changed = await entry('PATCH', path, { description: 'b' })
    const removed = await entry('DELETE', path)
    for (const { tables } of [made, changed, removed]) {
      expect(tables).toHaveLength(1)
      expect(tables[0]).toEqual(expect.arrayContaining(['audit', 'ip_policies']))
    }
    const { body } = await call('GET', '/audit?limit=3')
    expect(
      body.entries.map(({ action, result }: Record<string, string>) => `${action} ${result}`),
    ).toEqual(['ip_policy.delete ok', 'ip_policy.update ok', 'ip_policy.create ok'])
  })
})
