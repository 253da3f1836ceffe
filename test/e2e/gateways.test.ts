import { readFileSync, writeFileSync } from 'node:fs'
import { join } from 'node:path'
import { afterAll, beforeAll, describe, expect, it } from 'vitest'
import { eventually } from '../helpers/eventually.ts'
import { GatewayProgram, startRun } from '../helpers/gateway-program.ts'
import { hasPostgres, TestPostgres } from '../helpers/postgres.ts'
import { runProgram } from '../helpers/program.ts'
import { publicRequest } from '../helpers/public-request.ts'
import { lastingAddress } from '../helpers/some-ports.ts'
import { temporaryFolder } from '../helpers/temporary-folder.ts'

describe.skipIf(!hasPostgres)('three gateways in a process each', () => {
  let postgres: TestPostgres
  beforeAll(async () => {
    postgres = await TestPostgres.start()
  })
  afterAll(() => postgres?.remove())

  it('serve all devices at all of them, when one is killed and while PostgreSQL is away', async () => {
    const { host: dbHost, port: dbPort, database, user, password } = await postgres.database()
    const folder = temporaryFolder()
    const passwordFile = join(folder, 'password')
    writeFileSync(passwordFile, password?.reveal() ?? '')
    const [http, https] = [lastingAddress().port, lastingAddress().port]
    const settingsOf = (number: number) => ({
      GATEWAY_DATABASE_URL: `postgres://${user}@${dbHost}:${dbPort}/${database}`,
      GATEWAY_DATABASE_PASSWORD_FILE: passwordFile,
      GATEWAY_PEER_LISTEN: `127.0.0.${number}:${lastingAddress().port}`,
      GATEWAY_HTTP_LISTEN: `127.0.0.${number}:${http}`,
      GATEWAY_HTTPS_LISTEN: `127.0.0.${number}:${https}`,
      GATEWAY_RESERVED_DOMAIN: '*.site.localhost',
      GATEWAY_DATA_DIR: join(folder, `gateway-${number}`),
    })
    const one = await GatewayProgram.start(folder, settingsOf(1))
    const nodes = [one]
    for (const number of [2, 3]) {
      const settings = settingsOf(number)
      const made = await runProgram({
        args: ['gateway', 'join-token', '--json'],
        env: { ...settings, LOG_LEVEL: 'warn' },
        cwd: folder,
      })
      expect(made.stderr).toBe('')
      const file = join(folder, `join-token-${number}`)
      writeFileSync(file, JSON.parse(made.stdout).token)
      nodes.push(await GatewayProgram.start(folder, { ...settings, GATEWAY_JOIN_TOKEN_FILE: file }))
    }
    const visit = (number: number, host: string) =>
      publicRequest({
        ingress: `http://127.0.0.${number}:${http}`,
        address: `127.0.0.${number}`,
        path: '/healthz',
        host,
      })
    const addressOf = (index: number) => nodes[index]?.ready.agent_listen
    const start = (name: string, first: number, second: number) =>
      startRun(folder, {
        AGENT_DATA_DIR: join(folder, name),
        AGENT_DOMAIN: `${name}.site.localhost`,
        SVC_SERVER_ADDR: `${addressOf(first)},${addressOf(second)}`,
        SVC_CA_CERT: one.ready.ca_cert,
        SVC_AUTHTOKEN: readFileSync(one.ready.authtoken_file, 'utf8').trim(),
      })
    await Promise.all([start('press', 0, 1), start('oven', 1, 2)])
    const areServed = async (numbers: readonly number[]) => {
      for (const number of numbers) {
        for (const name of ['press', 'oven']) {
          expect([number, name, (await visit(number, `${name}.site.localhost`)).status]).toEqual([
            number,
            name,
            200,
          ])
        }
      }
    }
    await eventually(() => areServed([1, 2, 3]))
    const killedAt = performance.now()
    await one.program.end('SIGKILL')
    await eventually(() => areServed([2, 3]))
    process.stderr.write(`served again after ${Math.round(performance.now() - killedAt)} ms\n`)
    await postgres.stop()
    const until = performance.now() + 5_000
    while (performance.now() < until) await areServed([2, 3])
    await postgres.start()
    await areServed([2, 3])
    const made = () => nodes[1]?.manage('POST', '/bot_users', { name: 'after' })
    await eventually(async () => expect(await made()).toMatchObject({ status: 201 }))
  })
})
