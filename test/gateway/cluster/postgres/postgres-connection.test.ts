import { afterAll, beforeAll, describe, expect, it, onTestFinished } from 'vitest'
import { systemClock } from '../../../../src/base/clock.ts'
import { createDeferred } from '../../../../src/base/deferred.ts'
import { DatabaseFollower } from '../../../../src/gateway/cluster/postgres/database-follower.ts'
import {
  type ConnectionOptions,
  PostgresConnection,
} from '../../../../src/gateway/cluster/postgres/postgres-connection.ts'
import { migrateSchema } from '../../../../src/gateway/cluster/postgres/schema.ts'
import type { DatabaseAddress } from '../../../../src/settings/database-url.ts'
import { captureLog } from '../../../helpers/captured-log.ts'
import { ChaosProxy } from '../../../helpers/chaos-proxy.ts'
import { eventually } from '../../../helpers/eventually.ts'
import { ManualClock } from '../../../helpers/manual-clock.ts'
import { hasPostgres, TestPostgres } from '../../../helpers/postgres.ts'

describe.skipIf(!hasPostgres)('with a PostgreSQL', () => {
  let postgres: TestPostgres
  let address: DatabaseAddress
  beforeAll(async () => {
    postgres = await TestPostgres.start()
    address = await postgres.database()
  })
  afterAll(() => postgres?.remove())

  const serverAt = (change: Partial<DatabaseAddress> = {}) => ({
    address: { ...address, ...change },
    password: address.password,
    passwordPath: undefined,
  })
  const connect = (change: Partial<ConnectionOptions> = {}) => {
    const { log, text, lines } = captureLog()
    const connection = new PostgresConnection({
      // On a busy machine a session may take longer than anybody waits in earnest.
      ...{ server: serverAt(), name: 'test', waitMs: 30_000, log, clock: systemClock },
      ...change,
    })
    onTestFinished(() => connection.stop())
    connection.start()
    return { connection, text, lines }
  }

  describe('PostgresConnection', () => {
    it('opens one session, however many ask for it at once', async () => {
      const proxy = await ChaosProxy.start(address)
      const { connection } = connect({ server: serverAt(proxy.address) })
      connection.start()
      const answers = Array.from({ length: 20 }, (_, n) =>
        connection.query('SELECT $1::int AS n', [n]),
      )
      expect(await Promise.all(answers)).toEqual(Array.from({ length: 20 }, (_, n) => [{ n }]))
      expect(proxy.accepted).toBe(1)
      expect(connection.state).toBe('ready')
    })

    it('gives the session to one at a time, in their order', async () => {
      const { connection } = connect()
      const order: string[] = []
      const slow = connection.transaction(async (it) => {
        order.push('slow begins')
        await it.query('SELECT pg_sleep(0.05)')
        order.push('slow ends')
      })
      const quick = connection.run(async () => {
        order.push('quick')
      })
      await Promise.all([slow, quick])
      expect(order).toEqual(['slow begins', 'slow ends', 'quick'])
    })

    it('tells whoever asked when the work throws before it begins, and goes on', async () => {
      const { connection } = connect()
      const broken = connection.run(() => {
        throw new Error('no work')
      })
      await expect(broken).rejects.toThrow('no work')
      expect(await connection.query('SELECT 1 AS n')).toEqual([{ n: 1 }])
    })

    it('comes back by itself after a restart, and who asks meanwhile only waits', async () => {
      const { connection, lines } = connect()
      await connection.query('SELECT 1')
      await postgres.stop()
      await eventually(() => expect(connection.state).not.toBe('ready'))
      const waiting = connection.query('SELECT 7 AS n')
      await postgres.start()
      expect(await waiting).toEqual([{ n: 7 }])
      expect(connection.problem).toBeUndefined()
      expect(lines.at(-1)).toMatchObject({ msg: 'database connection restored', database: 'test' })
    })

    it('tells who cannot wait longer why there is no session, and logs it once', async () => {
      const proxy = await ChaosProxy.start(address)
      proxy.refuse()
      const { connection, lines } = connect({ server: serverAt(proxy.address), waitMs: 200 })
      await expect(connection.query('SELECT 1')).rejects.toMatchObject({
        code: 'database-unreachable',
        isUndone: true,
      })
      await eventually(() => expect(proxy.accepted).toBeGreaterThan(2))
      expect(lines.filter(({ msg }) => msg === 'database connection lost')).toHaveLength(1)
      proxy.heal()
      await eventually(() => expect(connection.state).toBe('ready'))
    })

    it('says what somebody has to change, without the password', async () => {
      const wrong = { ...serverAt(), passwordPath: '/dev/null' }
      const { connection, text } = connect({ server: wrong, waitMs: 200 })
      await eventually(() => expect(connection.state).toBe('waiting'))
      expect(connection.problem).toMatchObject({ code: 'database-password' })
      await expect(connection.query('SELECT 1')).rejects.toMatchObject({
        code: 'database-password',
      })
      expect(text()).toContain('GATEWAY_DATABASE_PASSWORD_FILE')
      expect(text()).not.toContain(postgres.password.reveal())
    })

    it('refuses what waits too long behind others, and what comes after its end', async () => {
      const { connection } = connect({ waitMs: 50 })
      await eventually(() => expect(connection.state).toBe('ready'))
      const others = createDeferred()
      const slow = connection.run(() => others.promise)
      await expect(connection.query('SELECT 1')).rejects.toMatchObject({ code: 'database-slow' })
      others.resolve()
      await slow
      const busy = connection.query('SELECT pg_sleep(0.3)').catch(() => 'ended')
      const queued = expect(connection.query('SELECT 1')).rejects.toThrow('the gateway is stopping')
      await connection.stop()
      await queued
      expect(await busy).toBe('ended')
      expect(connection.state).toBe('closed')
      await expect(connection.query('SELECT 1')).rejects.toMatchObject({ isUndone: true })
      await connection.stop()
    })

    it('lets no more than a bounded number wait', async () => {
      const { connection } = connect({ server: serverAt({ port: 1 }), waitMs: 60_000 })
      const waiting = Array.from({ length: 1_000 }, () => connection.query('SELECT 1'))
      const refused = Promise.allSettled(waiting)
      await expect(connection.query('SELECT 1')).rejects.toMatchObject({ isUndone: true })
      await connection.stop()
      await refused
    })

    it('prepares each session before anybody has it', async () => {
      const { connection } = connect({
        prepare: async (it) => {
          await it.query('CREATE TEMP TABLE prepared (n int)')
        },
      })
      await connection.query('INSERT INTO prepared VALUES (1)')
      await postgres.query(
        'SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE datname LIKE $$test_%$$',
      )
      await eventually(async () => {
        expect(await connection.query('SELECT n FROM prepared')).toEqual([])
      })
    })
  })

  describe('DatabaseFollower', () => {
    const common = { log: captureLog().log, clock: systemClock }
    const follow = (server = serverAt()) => {
      const follower = new DatabaseFollower({ ...common, server, name: 'follower' })
      onTestFinished(() => follower.stop())
      const heard: string[] = []
      const listened: string[] = []
      const listen = (channel: string) =>
        follower.listen(channel, {
          onNotice: (payload) => heard.push(`${channel} ${payload}`),
          onListening: () => listened.push(channel),
        })
      return { follower, heard, listened, listen }
    }

    it('hears each channel, and says when it listens again', async () => {
      const proxy = await ChaosProxy.start(address)
      const { follower, heard, listened, listen } = follow(serverAt(proxy.address))
      const { connection } = connect()
      listen('changes')
      follower.start()
      await eventually(() => expect(listened).toEqual(['changes']))
      listen('later')
      await eventually(() => expect(listened).toEqual(['changes', 'later']))
      await connection.query(
        "SELECT pg_notify('other', 'x'), pg_notify('changes', '1'), pg_notify('later', '2')",
      )
      await eventually(() => expect(heard).toEqual(['changes 1', 'later 2']))
      proxy.cut()
      await eventually(() => expect(listened.slice(2)).toEqual(['changes', 'later']))
      await eventually(() => expect(follower.connection.state).toBe('ready'))
      await connection.query("SELECT pg_notify('changes', '3'), pg_notify('later', '4')")
      await eventually(() => expect(heard.slice(2)).toEqual(['changes 3', 'later 4']))
    })

    it('finds out by itself that the server is silent', async () => {
      const clock = new ManualClock()
      const proxy = await ChaosProxy.start(address)
      const follower = new DatabaseFollower({
        ...common,
        clock,
        server: serverAt(proxy.address),
        limits: { answerMs: 50 },
        name: 'follower',
      })
      onTestFinished(() => follower.stop())
      follower.start()
      await eventually(() => expect(follower.connection.state).toBe('ready'))
      proxy.freeze()
      await eventually(async () => {
        // Its wait for the next question may have begun after an earlier step of the clock.
        await clock.advance(5_000)
        expect(follower.connection.state).not.toBe('ready')
      })
    })
  })

  describe('migrateSchema', () => {
    const steps = [
      { id: 'notes-1', sql: 'CREATE TABLE notes (n int); INSERT INTO notes VALUES (1)' },
      { id: 'notes-2', sql: 'ALTER TABLE notes ADD COLUMN t text' },
    ]
    const fresh = async () => ({ server: serverAt(await postgres.database()), name: 'schema' })

    it('applies each step once, however many nodes start at once', async () => {
      const options = await fresh()
      const applied = await Promise.all(
        Array.from({ length: 6 }, () => migrateSchema(options, steps)),
      )
      expect(applied.flat().sort()).toEqual(['notes-1', 'notes-2'])
      const { connection } = connect({ server: options.server })
      expect(await connection.query('SELECT * FROM notes')).toEqual([{ n: 1, t: null }])
    })

    it('applies all or none', async () => {
      const options = await fresh()
      const broken = [...steps, { id: 'notes-3', sql: 'ALTER TABLE nothing ADD COLUMN t text' }]
      await expect(migrateSchema(options, broken)).rejects.toMatchObject({ code: 'database-error' })
      expect(await migrateSchema(options, steps)).toEqual(['notes-1', 'notes-2'])
    })

    it('refuses tables of a newer version, and says so', async () => {
      const options = await fresh()
      await migrateSchema(options, steps)
      await expect(migrateSchema(options, steps.slice(0, 1))).rejects.toThrow(
        'The tables were changed by a newer version: unknown schema steps: notes-2.',
      )
    })
  })
})
