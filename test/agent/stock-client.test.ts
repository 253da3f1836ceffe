import { execFile } from 'node:child_process'
import { promisify } from 'node:util'
import { afterAll, beforeAll, describe, expect, it } from 'vitest'
import { isDown, startedOnGateway } from '../helpers/agent-on-gateway.ts'
import { eventually } from '../helpers/eventually.ts'
import { hasPostgres, TestPostgres } from '../helpers/postgres.ts'
import { somePorts } from '../helpers/some-ports.ts'

const run = promisify(execFile)
const MIB = 1_048_576

describe.skipIf(!hasPostgres)('psql through a tcp tunnel', () => {
  let postgres: TestPostgres
  beforeAll(async () => {
    postgres = await TestPostgres.shared()
  })
  afterAll(() => postgres.remove())

  async function startTunnel() {
    const on = await startedOnGateway({ gateway: { tcpListen: somePorts() } })
    const { host, port, user, database } = postgres.address
    const { tunnel } = await on.agent.create({
      protocol: 'tcp',
      forwardsTo: `${host}:${port}`,
      domain: '',
      policy: null,
    })
    const address = new URL(`tcp://${tunnel.spec.domain}`)
    /** As somebody at a desk asks, each time on a connection of its own. */
    const psql = async (sql: string) => {
      const args = ['-h', address.hostname, '-p', address.port, '-U', user, '-d', database]
      const env = {
        ...process.env,
        PGPASSWORD: postgres.password.reveal(),
        PGCONNECT_TIMEOUT: '60',
      }
      const options = { env, maxBuffer: 64 * MIB, timeout: 60_000 }
      const { stdout } = await run('psql', [...args, '-qtAX', '-c', sql], options)
      return stdout.trim()
    }
    return { on, psql }
  }

  it('is served before an outage, waits while it lasts, and is served after it', async () => {
    const { on, psql } = await startTunnel()
    await psql('CREATE TABLE readings (at int PRIMARY KEY, text text)')
    await psql("INSERT INTO readings SELECT n, repeat('x', 1000) FROM generate_series(1, 4000) n")
    const whole = await psql('SELECT text FROM readings')
    expect(whole.length).toBe(4_000 * 1_001 - 1)
    // A statement is under way when the link breaks: it must not look as if it had ended well.
    const broken = psql('SELECT pg_sleep(120)').then(
      () => 'done',
      () => 'broken',
    )
    await eventually(async () => {
      const sql = "SELECT pid FROM pg_stat_activity WHERE query = 'SELECT pg_sleep(120)'"
      expect(await postgres.query(sql)).toHaveLength(1)
    })
    on.proxy.refuse()
    on.proxy.cut()
    await isDown(on)
    expect(await broken).toBe('broken')
    const waiting = psql('SELECT count(*) FROM readings')
    on.proxy.heal()
    expect(await waiting).toBe('4000')
    expect(await psql('SELECT max(at) FROM readings')).toBe('4000')
  })
})
