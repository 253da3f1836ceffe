import { existsSync } from 'node:fs'
import { join } from 'node:path'
import { afterAll, beforeAll, describe, expect, it, onTestFinished } from 'vitest'
import type { UpReady } from '../../src/cli/up/up-text.ts'
import { readIdentity } from '../../src/gateway/peers/peer-identity.ts'
import { type EchoUpstream, startEchoUpstream } from '../helpers/echo-upstream.ts'
import { eventually } from '../helpers/eventually.ts'
import { hasPostgres, TestPostgres } from '../helpers/postgres.ts'
import { Program, runProgram } from '../helpers/program.ts'
import { publicRequest } from '../helpers/public-request.ts'
import { temporaryFolder } from '../helpers/temporary-folder.ts'

const HOST = 'hello.site.localhost'

describe.skipIf(!hasPostgres)('device-agent up --nodes', () => {
  let postgres: TestPostgres
  let upstream: EchoUpstream
  beforeAll(async () => {
    postgres = await TestPostgres.start()
    upstream = await startEchoUpstream('hello')
  })
  afterAll(async () => {
    await upstream?.close()
    await postgres?.remove()
  })

  const urlOf = async () => {
    const { host, port, database, user, password } = await postgres.database()
    const secret = encodeURIComponent(password?.reveal() ?? '')
    return `postgres://${user}:${secret}@${host}:${port}/${database}?sslmode=disable`
  }
  const settingsOf = (folder: string) => ({
    AGENT_DATA_DIR: join(folder, 'data'),
    LOG_LEVEL: 'warn',
  })
  const start = async (folder: string, url: string) => {
    const program = new Program({
      args: ['up', '--nodes', '3', '--database-url', url, '--json'],
      cwd: folder,
      env: settingsOf(folder),
    })
    onTestFinished(() => program.end('SIGINT').then(() => {}))
    const { nodes = [], ...ready } = await program.ready<UpReady>()
    return { program, ready, nodes }
  }
  const visit = (ingress: string) =>
    publicRequest({ ingress, address: new URL(ingress).hostname, host: HOST })

  /** Has the gateway of a folder forgotten, as its site remembers it while it is away. */
  const forget = async ({ management_api, api_key }: UpReady, dataDir: string) => {
    const id = readIdentity(dataDir)?.nodeId
    await eventually(async () => {
      const { status } = await fetch(`${management_api}/nodes/${id}`, {
        method: 'DELETE',
        headers: { authorization: `Bearer ${api_key}`, 'svc-version': '2' },
      })
      expect(status).toBe(204)
    })
  }

  it('serves a device at three gateways, when one is killed and forgotten, and again after Ctrl-C', async () => {
    const [folder, url] = [temporaryFolder(), await urlOf()]
    const first = await start(folder, url)
    expect(first.nodes.map(({ number }) => number)).toEqual([1, 2, 3])
    const spec = { protocol: 'http', forwards_to: `localhost:${upstream.port}`, domain: HOST }
    const answer = await fetch(`${first.ready.agent_api}/tunnels`, {
      method: 'POST',
      headers: {
        authorization: `Bearer ${first.ready.api_token}`,
        'content-type': 'application/json',
      },
      body: JSON.stringify(spec),
    })
    expect(answer.status).toBe(200)
    const areServing = (nodes: typeof first.nodes) =>
      eventually(async () => {
        for (const { ingress_http } of nodes) {
          expect([ingress_http, (await visit(ingress_http)).status]).toEqual([ingress_http, 200])
        }
      })
    await areServing(first.nodes)
    const [one, two, three] = first.nodes
    if (!one || !two || !three) throw new Error('there are not three gateways')
    process.kill(two.pid, 'SIGKILL')
    await areServing([one, three])
    await eventually(() => expect(first.program.stderr).toContain('a gateway has ended'))
    await forget(first.ready, two.data_dir)
    const { code, stderr } = await first.program.end('SIGINT')
    expect(code).toBe(0)
    expect(stderr.match(/a gateway has ended/g)).toHaveLength(1)
    for (const { pid } of first.nodes) expect(existsSync(`/proc/${pid}`)).toBe(false)
    await areServing((await start(folder, url)).nodes)
  })

  const refusal = async (env: Record<string, string>, ...args: string[]) => {
    const folder = temporaryFolder()
    const options = { args: ['up', ...args], cwd: folder, env: { ...settingsOf(folder), ...env } }
    const { code, stdout, stderr } = await runProgram(options)
    expect(stdout).toBe('')
    const lines = stderr.split('\n').filter((line) => line !== '' && !line.startsWith('{'))
    return { code, said: lines.join(' ') }
  }

  it.each([
    ['1', 'from 2 to 8'],
    ['9', 'from 2 to 8'],
    ['some', 'from 2 to 8'],
  ])('refuses %s gateways', async (count, words) => {
    const { code, said } = await refusal({}, '--nodes', count, '--database-url', 'postgres://a@b/c')
    expect([code, said]).toEqual([2, expect.stringContaining(words)])
  })

  it('refuses a database that is not there, or that it may not use, in one sentence', async () => {
    const url = await urlOf()
    const port = new URL(url).port
    const cases: [words: string, url: string | undefined][] = [
      ['Set --database-url postgres://user@host/database', undefined],
      ['must be postgres://user@host/database', 'http://db.lan/site'],
      ['cannot be reached', url.replace(`:${port}/`, ':1/')],
      ['rejected the password', url.replace('correct', 'wrong')],
      ['The database does not exist', url.replace('/test_', '/no_')],
    ]
    for (const [words, wanted] of cases) {
      const given = wanted === undefined ? [] : ['--database-url', wanted]
      const { code, said } = await refusal({}, '--nodes', '2', ...given)
      expect([code, said]).toEqual([1, expect.stringContaining(words)])
      expect(said).not.toContain('battery')
    }
    const idle = await refusal({}, '--database-url', url)
    expect([idle.code, idle.said]).toEqual([2, expect.stringContaining('--nodes')])
  })

  it('leaves the site of somebody else alone', async () => {
    const url = await urlOf()
    await start(temporaryFolder(), url)
    const { code, said } = await refusal({ GATEWAY_DATABASE_URL: url }, '--nodes', '2')
    expect([code, said]).toEqual([1, expect.stringContaining('belongs to an existing cluster')])
  })
})
