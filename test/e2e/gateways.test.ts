import { readFileSync, writeFileSync } from 'node:fs'
import { join } from 'node:path'
import { afterAll, beforeAll, describe, expect, it } from 'vitest'
import { eventually } from '../helpers/eventually.ts'
import { findFaketime } from '../helpers/faketime.ts'
import { GatewayProgram, startRun } from '../helpers/gateway-program.ts'
import { hasPostgres, TestPostgres } from '../helpers/postgres.ts'
import { runProgram } from '../helpers/program.ts'
import { publicRequest } from '../helpers/public-request.ts'
import { lastingAddress } from '../helpers/some-ports.ts'
import { temporaryFolder } from '../helpers/temporary-folder.ts'

const faketime = findFaketime()

describe.skipIf(!hasPostgres)('gateways in a process each', () => {
  let postgres: TestPostgres
  beforeAll(async () => {
    postgres = await TestPostgres.start()
  })
  afterAll(() => postgres?.remove())

  /** So many gateways, the first one first; `envOf` is for one of them alone. */
  const start = async (
    folder: string,
    count: number,
    envOf: (number: number) => Record<string, string> = () => ({}),
  ) => {
    const { host: dbHost, port: dbPort, database, user, password } = await postgres.database()
    const passwordFile = join(folder, 'password')
    writeFileSync(passwordFile, password?.reveal() ?? '')
    const [http, https] = [lastingAddress().port, lastingAddress().port]
    const nodes: GatewayProgram[] = []
    for (let number = 1; number <= count; number += 1) {
      const settings = {
        GATEWAY_DATABASE_URL: `postgres://${user}@${dbHost}:${dbPort}/${database}`,
        GATEWAY_DATABASE_PASSWORD_FILE: passwordFile,
        GATEWAY_PEER_LISTEN: `127.0.0.${number}:${lastingAddress().port}`,
        GATEWAY_HTTP_LISTEN: `127.0.0.${number}:${http}`,
        GATEWAY_HTTPS_LISTEN: `127.0.0.${number}:${https}`,
        GATEWAY_RESERVED_DOMAIN: '*.site.localhost',
        GATEWAY_DATA_DIR: join(folder, `gateway-${number}`),
      }
      const joins: Record<string, string> = {}
      if (number > 1) {
        const made = await runProgram({
          args: ['gateway', 'join-token', '--json'],
          env: { ...settings, LOG_LEVEL: 'warn' },
          cwd: folder,
        })
        expect(made.stderr).toBe('')
        joins.GATEWAY_JOIN_TOKEN_FILE = join(folder, `join-token-${number}`)
        writeFileSync(joins.GATEWAY_JOIN_TOKEN_FILE, JSON.parse(made.stdout).token)
      }
      nodes.push(await GatewayProgram.start(folder, { ...settings, ...joins, ...envOf(number) }))
    }
    const [one] = nodes
    if (!one) throw new Error('there are no gateways')
    /** Statuses of visits since it was cleared. */
    const seen = new Set<number>()
    const visit = async (number: number, host: string) => {
      const answer = await publicRequest({
        ingress: `http://127.0.0.${number}:${http}`,
        address: `127.0.0.${number}`,
        path: '/healthz',
        host,
      })
      seen.add(answer.status)
      return answer
    }
    const startAgent = (name: string, first: number, second: number) =>
      startRun(folder, {
        AGENT_DATA_DIR: join(folder, name),
        AGENT_DOMAIN: `${name}.site.localhost`,
        SVC_SERVER_ADDR: [first, second].map((at) => nodes[at]?.ready.agent_listen).join(),
        SVC_CA_CERT: one.ready.ca_cert,
        SVC_AUTHTOKEN: readFileSync(one.ready.authtoken_file, 'utf8').trim(),
      })
    const areServed = async (numbers: readonly number[], names: readonly string[]) => {
      for (const number of numbers) {
        for (const name of names) {
          expect([number, name, (await visit(number, `${name}.site.localhost`)).status]).toEqual([
            number,
            name,
            200,
          ])
        }
      }
    }
    return { one, nodes, startAgent, areServed, seen }
  }

  it('serve all devices at all of them, when one is killed and while PostgreSQL is away', async () => {
    const { one, nodes, startAgent, areServed, seen } = await start(temporaryFolder(), 3)
    const names = ['press', 'oven']
    await Promise.all([startAgent('press', 0, 1), startAgent('oven', 1, 2)])
    await eventually(() => areServed([1, 2, 3], names))
    const killedAt = performance.now()
    await one.program.end('SIGKILL')
    seen.clear()
    await eventually(() => areServed([2, 3], names))
    expect(seen).not.toContain(404)
    process.stderr.write(`served again after ${Math.round(performance.now() - killedAt)} ms\n`)
    await postgres.stop()
    const until = performance.now() + 5_000
    while (performance.now() < until) await areServed([2, 3], names)
    await postgres.start()
    await areServed([2, 3], names)
    const made = () => nodes[1]?.manage('POST', '/bot_users', { name: 'after' })
    await eventually(async () => expect(await made()).toMatchObject({ status: 201 }))
  })

  it.runIf(faketime).each([
    ['ahead', '+50m'],
    ['behind', '-50m'],
  ])(
    'keep their places and serve each other’s devices when the clock of one is %s',
    async (_word, offset) => {
      const clock = {
        LD_PRELOAD: faketime ?? '',
        FAKETIME: offset,
        FAKETIME_DONT_FAKE_MONOTONIC: '1',
      }
      const envOf = (number: number) => (number === 2 ? clock : {})
      const { nodes, startAgent, areServed } = await start(temporaryFolder(), 2, envOf)
      await startAgent('press', 0, 1)
      await startAgent('oven', 1, 0)
      await eventually(() => areServed([1, 2], ['press', 'oven']))
      for (const [at, node] of nodes.entries()) {
        expect(await node.manage('POST', '/bot_users', { name: `made${at}` })).toMatchObject({
          status: 201,
        })
        const { body } = await node.manage('GET', '/nodes')
        const seen = body.nodes.map((it: Record<string, unknown>) => [it.state, it.is_reached])
        expect(seen).toEqual([
          ['live', true],
          ['live', true],
        ])
      }
      await areServed([1, 2], ['press', 'oven'])
    },
  )
})
