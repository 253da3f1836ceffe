import { writeFileSync } from 'node:fs'
import { createServer } from 'node:net'
import { join } from 'node:path'
import { afterAll, beforeAll, describe, expect, it, onTestFinished } from 'vitest'
import { Secret } from '../../../../src/base/secret.ts'
import {
  PostgresSession,
  type SessionOptions,
} from '../../../../src/gateway/cluster/postgres/postgres-session.ts'
import type { DatabaseAddress } from '../../../../src/settings/database-url.ts'
import { ChaosProxy } from '../../../helpers/chaos-proxy.ts'
import { eventually } from '../../../helpers/eventually.ts'
import { hasPostgres, TestPostgres } from '../../../helpers/postgres.ts'
import { temporaryFolder } from '../../../helpers/temporary-folder.ts'
import { createTlsFixture, type TlsFixture } from '../../../helpers/tls-fixture.ts'

describe.skipIf(!hasPostgres)('PostgresSession', () => {
  let postgres: TestPostgres
  let tls: TlsFixture
  beforeAll(async () => {
    tls = await createTlsFixture()
    postgres = await TestPostgres.start({ tls })
  })
  afterAll(() => postgres?.remove())

  const open = async (
    change: Partial<DatabaseAddress> = {},
    options: Partial<SessionOptions> = {},
  ) => {
    const address = { ...postgres.socketAddress, ...change }
    const server = { address, password: address.password, passwordPath: undefined }
    const session = await PostgresSession.open({ server, name: 'test', ...options })
    onTestFinished(() => session.close())
    return session
  }
  /** By TCP this server speaks TLS alone. */
  const overTls = (change: Partial<DatabaseAddress> = {}) => {
    const caPath = join(temporaryFolder(), 'ca.pem')
    writeFileSync(caPath, tls.caPem)
    return open({ ...postgres.address, tls: 'verify-full', caPath, ...change })
  }

  it('runs statements with values, and gives int8 as numbers', async () => {
    const session = await open()
    expect(await session.query('SELECT $1::int8 AS n, $2::text AS t', [2 ** 40, 'x'])).toEqual([
      { n: 2 ** 40, t: 'x' },
    ])
    await expect(session.query('SELECT 9007199254740993')).rejects.toThrow('too large')
  })

  it('has the limits that keep one session from stopping all others', async () => {
    const session = await open()
    const show = async (name: string) => (await session.query(`SHOW ${name}`))[0]?.[name]
    expect(await show('statement_timeout')).toBe('2s')
    expect(await show('lock_timeout')).toBe('1s')
    expect(await show('idle_in_transaction_session_timeout')).toBe('1s')
    expect(await show('synchronous_commit')).toBe('on')
    expect(await show('application_name')).toBe('device-agent test')
  })

  it('keeps a transaction whole', async () => {
    const session = await open()
    await session.query('CREATE TEMP TABLE kept (n int)')
    const failing = session.transaction(async ({ query }) => {
      await query.call(session, 'INSERT INTO kept VALUES (1)')
      throw new Error('no')
    })
    await expect(failing).rejects.toThrow('no')
    await session.transaction((it) => it.query('INSERT INTO kept VALUES (2)'))
    expect(await session.query('SELECT n FROM kept')).toEqual([{ n: 2 }])
    const swallowed = session.transaction(async (it) => {
      await it.query('INSERT INTO kept VALUES (3)')
      await it.query('SELECT 1 / 0').catch(() => {})
    })
    await expect(swallowed).rejects.toThrow('the transaction was rolled back')
  })

  it('checks the certificate and the name in it', async () => {
    const session = await overTls()
    expect(await session.query('SELECT ssl FROM pg_stat_ssl WHERE pid = pg_backend_pid()')).toEqual(
      [{ ssl: true }],
    )
    await overTls({ host: 'localhost' })
    const stranger = join(temporaryFolder(), 'ca.pem')
    writeFileSync(stranger, (await createTlsFixture()).caPem)
    for (const wrong of [
      { caPath: stranger },
      { caPath: undefined },
      { caPath: join(temporaryFolder(), 'missing') },
      { host: '127.0.0.2' },
    ]) {
      await expect(overTls(wrong)).rejects.toMatchObject({ code: 'database-tls' })
    }
  })

  it('does not speak without TLS to a server that has none', async () => {
    const server = createServer((socket) => socket.once('data', () => socket.end('N')))
    await new Promise<void>((resolve) => server.listen(0, '127.0.0.1', resolve))
    onTestFinished(() => void server.close())
    const { port } = server.address() as { port: number }
    await expect(overTls({ port })).rejects.toMatchObject({ code: 'database-tls' })
  })

  it.each([
    ['database-password', { password: new Secret('wrong') }],
    ['database-password', { password: undefined }],
    ['database-missing', { database: 'nowhere' }],
    ['database-unreachable', { host: 'nowhere.invalid' }],
    // This server takes nobody by TCP without TLS.
    ['database-refused', { tls: 'off' }],
  ] as const)('says %s', async (code, change) => {
    const error = await overTls(change).catch((thrown: unknown) => thrown)
    expect(error).toMatchObject({ code, isUndone: true })
    expect(String(error)).not.toContain(postgres.password.reveal())
  })

  it('takes nothing from the environment of the process', async () => {
    for (const name of ['PGPASSWORD', 'PGUSER', 'PGDATABASE', 'PGOPTIONS', 'PGSSLMODE']) {
      const before = process.env[name]
      process.env[name] = name === 'PGPASSWORD' ? postgres.password.reveal() : 'nonsense'
      onTestFinished(() => {
        if (before === undefined) delete process.env[name]
        else process.env[name] = before
      })
    }
    await open()
    await expect(overTls({ password: undefined })).rejects.toThrow('none is set')
  })

  it('does not settle for a standby, nor for a database that takes no writes', async () => {
    const session = await open()
    await session.query('SET default_transaction_read_only = on')
    await expect(session.query('CREATE TABLE no (n int)')).rejects.toMatchObject({
      code: 'database-read-only',
    })
    // The next session may meet the new primary.
    expect(await session.ended).toMatchObject({ code: 'database-read-only' })
    const database = 'readonly'
    await postgres.query(`CREATE DATABASE ${database}`)
    await postgres.query(`ALTER DATABASE ${database} SET default_transaction_read_only = on`)
    await expect(open({ database })).rejects.toMatchObject({ code: 'database-read-only' })
  })

  it('ends when nobody answers a statement, and does not know whether it was done', async () => {
    const proxy = await ChaosProxy.start(postgres.address)
    const { port } = proxy.address
    const options = { limits: { answerMs: 2_000, statementMs: 60_000 } }
    const caPath = join(temporaryFolder(), 'ca.pem')
    writeFileSync(caPath, tls.caPem)
    const address = { ...postgres.address, tls: 'verify-full' as const, caPath }
    const session = await open({ ...address, port }, { limits: { answerMs: 120_000 } })
    await session.query('SELECT 1')
    const impatient = await open(postgres.socketAddress, options)
    await expect(impatient.query('SELECT pg_sleep(120)')).rejects.toMatchObject({
      code: 'database-slow',
      isUndone: false,
    })
    await impatient.ended
    await expect(impatient.query('SELECT 1')).rejects.toMatchObject({ isUndone: true })
    const lost = session.query('SELECT pg_sleep(121)')
    const outcome = expect(lost).rejects.toMatchObject({
      code: 'database-unreachable',
      isUndone: false,
    })
    await eventually(async () => {
      const rows = await postgres.query(
        "SELECT 1 FROM pg_stat_activity WHERE query = 'SELECT pg_sleep(121)' AND state = 'active'",
      )
      expect(rows).not.toEqual([])
    })
    proxy.reset()
    await outcome
  })

  it('knows that a transaction was not done whose connection ended before its end', async () => {
    const session = await open()
    const lost = session.transaction(async (it) => {
      await it.query('CREATE TABLE never (n int)')
      await postgres.query(
        "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE state = 'idle in transaction'",
      )
      await it.query('SELECT 1')
    })
    await expect(lost).rejects.toMatchObject({ isUndone: true })
    await session.ended
  })

  it('can be closed while it is opened', async () => {
    const silent = createServer(() => {})
    await new Promise<void>((resolve) => silent.listen(0, '127.0.0.1', resolve))
    onTestFinished(() => void silent.close())
    const { port } = silent.address() as { port: number }
    const server = {
      address: { ...postgres.address, port },
      password: undefined,
      passwordPath: undefined,
    }
    const stop = new AbortController()
    const opening = PostgresSession.open({ server, name: 'test' }, stop.signal)
    const met = new Promise((resolve) => silent.once('connection', resolve))
    await met
    stop.abort()
    await expect(opening).rejects.toMatchObject({ code: 'database-unreachable' })
    await expect(PostgresSession.open({ server, name: 'test' }, stop.signal)).rejects.toThrow(
      'closed here',
    )
  })
})
