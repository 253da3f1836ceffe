import { afterAll, beforeAll, describe, expect, it, onTestFinished, vi } from 'vitest'
import type { AppError } from '../../../../src/base/app-error.ts'
import { type Clock, systemClock } from '../../../../src/base/clock.ts'
import { withDeadline } from '../../../../src/base/deadline.ts'
import { createLogger } from '../../../../src/base/logger.ts'
import { CLUSTER_STEPS } from '../../../../src/gateway/cluster/nodes/cluster-schema.ts'
import {
  PostgresSession,
  type Row,
  type Statements,
} from '../../../../src/gateway/cluster/postgres/postgres-session.ts'
import type { Position } from '../../../../src/gateway/cluster/replication/entry.ts'
import {
  entriesFrom,
  RECORD_STEPS,
  readHead,
} from '../../../../src/gateway/cluster/replication/record-log.ts'
import type { DatabaseAddress } from '../../../../src/settings/database-url.ts'
import { AuditTrail } from '../../../../src/store/audit-trail.ts'
import type { Migration } from '../../../../src/store/migrations.ts'
import { ChaosProxy } from '../../../helpers/chaos-proxy.ts'
import { eventually } from '../../../helpers/eventually.ts'
import { hasPostgres, TestPostgres } from '../../../helpers/postgres.ts'
import { temporaryFolder } from '../../../helpers/temporary-folder.ts'
import { openNode, openShared } from './open-node.ts'

describe.skipIf(!hasPostgres)('records that several gateways have in common', () => {
  let postgres: TestPostgres
  beforeAll(async () => {
    postgres = await TestPostgres.shared()
  })
  afterAll(() => postgres?.remove())

  /** Statements of somebody who looks in from outside. */
  const sqlAt = async (address: DatabaseAddress) => {
    const server = { address, password: address.password, passwordPath: undefined }
    const session = await PostgresSession.open({ server, name: 'test' })
    onTestFinished(() => session.close())
    return (sql: string) => session.query(sql)
  }
  const twoNodes = async () => {
    const address = await postgres.database()
    const a = await openNode(address, { node: 'a' })
    const b = await openNode(address, { node: 'b' })
    return { address, a, b, sql: await sqlAt(address) }
  }

  it('are at the other node soon, and are followed there', async () => {
    const { a, b } = await twoNodes()
    const { credential } = await a.issuer.createCredential({ description: 'made at a' })
    await eventually(() => expect(b.credentials.get(credential.id)).toEqual(credential))
    await b.issuer.updateCredential(credential, { metadata: 'changed at b' })
    await eventually(() => expect(a.changedCredentials).toEqual([credential.id]))
    expect(a.credentials.get(credential.id)?.metadata).toBe('changed at b')
  })

  /** Entries by somebody who makes them large, or slow to read. */
  const fill = async (sql: (text: string) => Promise<unknown>, kb: number, count: number) => {
    // In parts, because one statement has a time limit.
    for (let from = 1; from <= count; from += 5) {
      await sql(`INSERT INTO record_log (n, mark, node, schema, tables, keys, contents)
        SELECT h.n + i, gen_random_uuid(), 'x', h.schema, '{t}', ARRAY['["' || i || '"]'],
          ARRAY[(SELECT string_agg(md5(random()::text || g), '') FROM generate_series(1, ${kb * 32}) g)]
        FROM record_head h, generate_series(${from}, ${Math.min(count, from + 4)}) i`)
    }
  }

  it('come in answers that are bounded by their size, to the last', async () => {
    const { address, sql } = await twoNodes()
    await fill(sql, 256, 40)
    const server = { address, password: address.password, passwordPath: undefined }
    const session = await PostgresSession.open({ server, name: 'test' })
    onTestFinished(() => session.close())
    let seen: Position = await readHead(session)
    const last = seen.n + 40
    const { query } = PostgresSession.prototype
    const sizes: number[] = []
    const statements: Statements = {
      // What cannot be parsed as a row is left out here: only its size counts.
      query: async <R extends Row>(text: string, values?: readonly unknown[]) => {
        const rows = await query.call(session, text, values)
        sizes.push(rows.reduce((sum, row) => sum + JSON.stringify(row).length, 0))
        return rows.map((row) => ({ ...row, tables: [], keys: [], contents: [] })) as unknown as R[]
      },
    }
    while (seen.n < last) {
      const entries: readonly Position[] = (await entriesFrom(statements, seen)) ?? []
      seen = entries.at(-1) ?? expect.fail('nothing came')
    }
    expect(sizes).toHaveLength(3)
    expect(Math.max(...sizes)).toBeLessThan(5_000_000)
    expect(await entriesFrom(statements, seen)).toEqual([])
  })

  it('are taken anew by a node that is behind where even one entry takes the database too long', async () => {
    const address = await postgres.database()
    const [sql, proxy] = [await sqlAt(address), await ChaosProxy.start(address)]
    const a = await openNode(address, { node: 'a' })
    const b = await openNode({ ...address, ...proxy.address }, { node: 'b' })
    proxy.refuse()
    proxy.cut()
    for (let n = 0; n < 100; n += 1) await a.issuer.createBotUser({ name: `bot ${n}` })
    await a.database.stop()
    // Whatever is read of the log takes longer than a statement may.
    await sql(`ALTER TABLE record_log RENAME TO quick_log;
      CREATE VIEW record_log AS SELECT n, mark, node, at, schema, tables, keys,
        CASE WHEN pg_sleep(0.03) IS NULL THEN '{}' ELSE contents END AS contents FROM quick_log`)
    proxy.heal()
    await eventually(() => expect(b.botUsers.page({ limit: 200 })).toHaveLength(100))
    expect(b.told.text()).toContain('records were reloaded')
  })

  it('hold what was checked: of two nodes that want the same, one gets it', async () => {
    const { a, b } = await twoNodes()
    for (let n = 0; n < 10; n += 1) {
      const domain = `*.site${n}.test`
      const both = [a, b].map((node) => node.registrar.reserve({ domain }))
      const outcomes = await Promise.allSettled(both)
      expect(outcomes.map(({ status }) => status).toSorted()).toEqual(['fulfilled', 'rejected'])
    }
    await eventually(() => expect(a.domains.all()).toEqual(b.domains.all()))
    expect(a.domains.all()).toHaveLength(10)
  })

  it('let a node through that is always slower than the others', async () => {
    const { a, b, sql } = await twoNodes()
    let isOver = false
    const busy = (async () => {
      for (let n = 0; !isOver; n += 1) await a.issuer.createBotUser({ name: `busy ${n}` })
    })()
    try {
      for (let n = 0; n < 20; n += 1) await b.issuer.createBotUser({ name: `slow ${n}` })
    } finally {
      isOver = true
      await busy
    }
    const [row] = await sql("SELECT count(*)::int AS n FROM record_log WHERE node = 'b'")
    expect(row).toEqual({ n: 20 })
    await eventually(() => {
      expect(a.botUsers.page({ limit: 9_999 })).toEqual(b.botUsers.page({ limit: 9_999 }))
    })
  })

  it('take what waits in one message, and refuse of it what cannot be', async () => {
    const { a, sql } = await twoNodes()
    const names = ['a', 'b', 'a', 'c', 'b']
    const outcomes = await Promise.allSettled(names.map((name) => a.issuer.createBotUser({ name })))
    expect(outcomes.map(({ status }) => status)).toEqual([
      'fulfilled',
      'fulfilled',
      'rejected',
      'fulfilled',
      'rejected',
    ])
    const [row] = await sql('SELECT max(n)::int AS n FROM record_log')
    expect(Number(row?.n)).toBeLessThanOrEqual(2)
  })

  it('are changed once when the answer is lost on its way', async () => {
    const address = await postgres.database()
    const proxy = await ChaosProxy.start({ host: address.host, port: address.port })
    // No change is given up: it is asked for again for as long as it takes.
    const clock: Clock = { ...systemClock, monotonic: () => 0 }
    const node = await openNode({ ...address, ...proxy.address }, { clock })
    const sql = await sqlAt(address)
    const rows = async () => Number((await sql('SELECT count(*)::int AS n FROM record_rows'))[0]?.n)
    for (let sent = 1; sent <= 3; sent += 1) {
      proxy.loseAnswerTo('append_records')
      const made = node.issuer.createBotUser({ name: `n${sent}` })
      await eventually(async () => expect(await rows()).toBe(sent))
      proxy.heal()
      await made
      expect(await rows()).toBe(sent)
    }
    expect(node.botUsers.page({ limit: 10 })).toHaveLength(3)
  })

  it('are told to be uncertain when nobody knows what became of them', async () => {
    const address = await postgres.database()
    const proxy = await ChaosProxy.start({ host: address.host, port: address.port })
    let passed = 0
    const clock: Clock = { ...systemClock, monotonic: () => passed }
    const node = await openNode({ ...address, ...proxy.address }, { clock })
    const sql = await sqlAt(address)
    proxy.loseAnswerTo('append_records')
    const made = node.issuer.createBotUser({ name: 'maybe' }).catch((error) => error)
    await eventually(async () => {
      expect(await sql('SELECT 1 FROM record_rows')).toHaveLength(1)
    })
    passed = 60_000
    proxy.cut()
    expect(await made).toMatchObject({ serviceCode: 'ERR_GATEWAY_RECORDS_UNKNOWN' })
    proxy.heal()
    await eventually(() => expect(node.botUsers.page({ limit: 10 })).toHaveLength(1))
  })

  it('have one row in the audit trail of a change that nobody knew what became of', async () => {
    const address = await postgres.database()
    const proxy = await ChaosProxy.start({ host: address.host, port: address.port })
    let passed = 0
    const clock: Clock = { ...systemClock, monotonic: () => passed }
    const { database, issuer } = await openNode({ ...address, ...proxy.address }, { clock })
    const sql = await sqlAt(address)
    const trail = new AuditTrail({ database, log: createLogger('silent'), clock, node: 'a' })
    const actor = { kind: 'api-key', id: 'ak_1', name: 'key' } as const
    let failure: unknown
    const create = () =>
      issuer.createBotUser({ name: 'maybe' }).catch((error) => {
        failure = error
        throw error
      })
    proxy.loseAnswerTo('append_records')
    const codeOf = (error: unknown) => (error as AppError).serviceCode ?? ''
    const made = trail
      .run({ actor, client: null, action: 'bot_user.create', requestId: 'r' }, create, {
        ...{ about: () => ({}), codeOf },
        concluded: (targetId) => ({ targetId }),
      })
      .catch(() => {})
    await eventually(async () => {
      expect((await sql('SELECT 1 FROM record_rows')).length).toBeGreaterThan(0)
    })
    passed = 60_000
    proxy.cut()
    await eventually(() => expect(failure).toBeDefined())
    proxy.heal()
    await made
    expect(codeOf(failure)).toBe('ERR_GATEWAY_RECORDS_UNKNOWN')
    expect(trail.page({ limit: 10 }).map(({ result }) => result)).toEqual(['ok'])
  })

  it('are not changed in an epoch that is over, until the node is in the next', async () => {
    const address = await postgres.database()
    let epoch = 1
    let passed = 0
    const clock: Clock = { ...systemClock, monotonic: () => passed }
    const steps = [...RECORD_STEPS, ...CLUSTER_STEPS]
    const node = await openNode(address, { node: 'a', steps, clock })
    const { issuer, botUsers, database } = node
    const sql = await sqlAt(address)
    await issuer.createBotUser({ name: 'before it is one of several' })
    await sql("INSERT INTO nodes VALUES ('a', 1, 1, 'serving', '{}')")
    database.changeIn(() => epoch)
    await issuer.createBotUser({ name: 'in time' })
    await sql('UPDATE nodes SET epoch = 2')
    const tried = vi.spyOn(botUsers, 'insert')
    const triesOf = (name: string) => tried.mock.calls.filter(([row]) => row.name === name).length
    const written = () => sql('SELECT n FROM record_head')
    const before = await written()
    const late = issuer.createBotUser({ name: 'late' })
    await eventually(() => expect(triesOf('late')).toBeGreaterThan(1))
    expect(await written()).toEqual(before)
    epoch = 2
    await late
    expect(await written()).not.toEqual(before)
    await sql('UPDATE nodes SET epoch = 3')
    const never = issuer.createBotUser({ name: 'never' }).catch((error) => error)
    await eventually(() => expect(triesOf('never')).toBeGreaterThan(1))
    passed = 60_000
    const refused = await never
    expect(refused).toMatchObject({ serviceCode: 'ERR_GATEWAY_RECORDS_UNAVAILABLE' })
    expect(refused.message).toContain('marked this gateway as lost')
    expect(botUsers.page({ limit: 10 })).toHaveLength(3)
  })

  it('say truly what became of a change when the database stays away', async () => {
    const address = await postgres.database()
    const proxy = await ChaosProxy.start({ host: address.host, port: address.port })
    const { issuer, botUsers, database } = await openNode({ ...address, ...proxy.address })
    await issuer.createBotUser({ name: 'before' })
    proxy.refuse()
    proxy.cut()
    await eventually(() => expect(database.fault).toBe('unwritable'))
    const undone = await issuer.createBotUser({ name: 'never sent' }).catch((error) => error)
    expect(undone).toMatchObject({
      code: 'storage-unavailable',
      serviceCode: 'ERR_GATEWAY_RECORDS_UNAVAILABLE',
    })
    expect(undone.message).toContain('The change was not made')
    expect(botUsers.page({ limit: 10 }).map(({ name }) => name)).toEqual(['before'])
    proxy.heal()
    await eventually(() => expect(database.fault).toBeUndefined())
    await issuer.createBotUser({ name: 'after' })
  })

  it('go on over a restart of the database', async () => {
    const own = await TestPostgres.start()
    onTestFinished(() => own.remove())
    const { issuer, botUsers } = await openNode(await own.database())
    await issuer.createBotUser({ name: 'before' })
    await own.crash()
    const made = issuer.createBotUser({ name: 'meanwhile' }).catch(() => {})
    await own.start()
    await made
    await eventually(async () => {
      // What came of one that is refused meanwhile shows in the list.
      await issuer.createBotUser({ name: 'after' }).catch(() => {})
      const names = botUsers.page({ limit: 10 }).map(({ name }) => name)
      expect(names).toEqual(expect.arrayContaining(['before', 'after']))
    })
  })

  it('are read without the database, from the copy of the node', async () => {
    const address = await postgres.database()
    const folder = temporaryFolder()
    const first = await openNode(address, { folder })
    const made = await first.issuer.createBotUser({ name: 'kept' })
    await first.database.stop()
    const nowhere = { ...address, port: 1 }
    const second = await openNode(nowhere, { folder })
    expect(second.botUsers.get(made.id)).toEqual(made)
    expect(second.database.fault).toBe('unwritable')
    const refused = second.issuer.createBotUser({ name: 'no' })
    await expect(refused).rejects.toMatchObject({ code: 'storage-unavailable' })
    await expect(openShared(nowhere)).rejects.toThrow('cannot be reached')
  })

  it('are taken anew where the log does not reach back, or is that of an older copy', async () => {
    const address = await postgres.database()
    const folder = temporaryFolder()
    const first = await openNode(address, { folder, node: 'a' })
    const gone = await first.issuer.createBotUser({ name: 'gone meanwhile' })
    await first.database.stop()
    const other = await openNode(address, { node: 'b' })
    await other.issuer.deleteBotUser(gone)
    const made = await other.issuer.createBotUser({ name: 'made meanwhile' })
    const sql = await sqlAt(address)
    await sql('DELETE FROM record_log WHERE n < (SELECT n FROM record_head)')
    const back = await openNode(address, { folder, node: 'a' })
    expect(back.botUsers.page({ limit: 10 })).toEqual([made])
    // A restored copy: it has the same numbers, and other entries.
    await sql('UPDATE record_head SET mark = gen_random_uuid(), n = n - 1')
    await sql('DELETE FROM record_rows')
    await sql(
      "INSERT INTO record_log (n, mark, node, schema, tables, keys, contents) SELECT n, mark, '', schema, '{}', '{}', '{}' FROM record_head ON CONFLICT (n) DO UPDATE SET mark = excluded.mark",
    )
    await sql('DELETE FROM record_log WHERE n > (SELECT n FROM record_head)')
    await eventually(() => expect(back.botUsers.page({ limit: 10 })).toEqual([]))
    expect(back.told.text()).toContain('older copy')
    await back.issuer.createBotUser({ name: 'goes on' })
    await eventually(() => expect(other.botUsers.page({ limit: 10 })).toHaveLength(1))
  })

  describe('in another form', () => {
    const ONE: Migration = {
      id: 'things-1',
      sql: `CREATE TABLE things (id TEXT PRIMARY KEY, text TEXT NOT NULL) STRICT, WITHOUT ROWID`,
    }
    const TWO: Migration = {
      id: 'things-2',
      sql: `ALTER TABLE things ADD COLUMN length INTEGER NOT NULL DEFAULT 0;
        UPDATE things SET length = length(text);
        DELETE FROM things WHERE text = 'drop'`,
    }
    const put = (database: Awaited<ReturnType<typeof openShared>>['database'], id: string) => {
      const insert = database.prepare<[string, string]>(
        'INSERT INTO things (id, text) VALUES (?, ?)',
      )
      return database.change(() => insert.run(id, id))
    }
    const things = (database: Awaited<ReturnType<typeof openShared>>['database']) =>
      database.prepare('SELECT * FROM things ORDER BY id').all()

    it('are brought into that of a newer version once, however many nodes start at once', async () => {
      const address = await postgres.database()
      const old = await openShared(address, { migrations: [ONE], node: 'old' })
      await put(old.database, 'keep')
      await put(old.database, 'drop')
      const opening = ['x', 'y', 'z'].map((node) =>
        openShared(address, { migrations: [ONE, TWO], node }),
      )
      const nodes = await Promise.all(opening)
      for (const { database } of nodes) {
        expect(things(database)).toEqual([{ id: 'keep', text: 'keep', length: 4 }])
      }
      const sql = await sqlAt(address)
      const entries = await sql("SELECT node FROM record_log WHERE schema LIKE '%things-2%'")
      expect(entries).toHaveLength(1)
      // The older one goes on with what it has, and changes nothing.
      await eventually(() => expect(old.database.report().problem).toContain('newer version'))
      expect(things(old.database)).toHaveLength(2)
      await expect(put(old.database, 'late')).rejects.toMatchObject({ code: 'storage-unavailable' })
      const [first] = nodes
      if (first) await withDeadline(put(first.database, 'new'), 60_000, 'a change')
    })
  })
})
