import { readFileSync } from 'node:fs'
import { join } from 'node:path'
import { afterAll, beforeAll, describe, expect, it } from 'vitest'
import { GatewayProgram } from '../helpers/gateway-program.ts'
import { hasPostgres, TestPostgres } from '../helpers/postgres.ts'
import { runProgram } from '../helpers/program.ts'
import { lastingAddress } from '../helpers/some-ports.ts'
import { temporaryFolder } from '../helpers/temporary-folder.ts'

describe.skipIf(!hasPostgres)('gateway migrate', () => {
  let postgres: TestPostgres
  beforeAll(async () => {
    postgres = await TestPostgres.shared()
  })
  afterAll(() => postgres?.remove())

  it('moves a site with its ids, tokens and what devices trust, and never over another one', async () => {
    const folder = temporaryFolder()
    const alone = await GatewayProgram.start(folder)
    const made = await alone.manage('POST', '/bot_users', { name: 'press line' })
    expect(made.status).toBe(201)
    const { host, port, database, user, password } = await postgres.database()
    const settings = {
      GATEWAY_DATABASE_URL: `postgres://${user}:${encodeURIComponent(password?.reveal() ?? '')}@${host}:${port}/${database}`,
      GATEWAY_PEER_LISTEN: `127.0.0.1:${lastingAddress().port}`,
      GATEWAY_HTTP_LISTEN: `127.0.0.1:${lastingAddress().port}`,
      GATEWAY_HTTPS_LISTEN: `127.0.0.1:${lastingAddress().port}`,
      GATEWAY_DATA_DIR: join(folder, 'gateway'),
      LOG_LEVEL: 'warn',
    }
    const migrate = () =>
      runProgram({ args: ['gateway', 'migrate', '--json'], env: settings, cwd: folder })
    const early = await migrate()
    expect([early.code, early.stderr]).toMatchObject([1, expect.stringMatching(/gateway/i)])
    const authtoken = readFileSync(alone.ready.authtoken_file, 'utf8')
    await alone.program.end()
    const { code, stdout } = await migrate()
    expect(code).toBe(0)
    expect(JSON.parse(stdout)).toEqual({ from: join(folder, 'gateway'), rows: expect.any(Number) })
    const again = await migrate()
    expect([again.code, again.stderr]).toMatchObject([1, expect.stringContaining('two sites')])
    const first = await GatewayProgram.start(folder, settings)
    expect([first.apiKey, first.ca]).toEqual([alone.apiKey, alone.ca])
    expect(readFileSync(first.ready.authtoken_file, 'utf8')).toBe(authtoken)
    const found = await first.manage('GET', `/bot_users/${made.body.id}`)
    expect(found).toMatchObject({ status: 200, body: { name: 'press line' } })
    const next = await migrate()
    expect(next.code).toBe(1)
  })
})
