import { mkdirSync, writeFileSync } from 'node:fs'
import { createServer, request } from 'node:http'
import { join } from 'node:path'
import { describe, expect, it, onTestFinished } from 'vitest'
import { Program, runProgram } from '../helpers/program.ts'
import { temporaryFolder } from '../helpers/temporary-folder.ts'

const SERVICE = { SVC_SERVER_ADDR: '127.0.0.1:1', SVC_AUTHTOKEN: 'no-authtoken-of-anybody' }
const DENY = 'on_http_request:\n  - actions: [{type: deny}]\n'

/** An agent without a gateway, and its command line in the same folder. */
async function startAgent() {
  const folder = temporaryFolder()
  const program = new Program({ args: ['run', '--json'], cwd: folder, env: SERVICE })
  onTestFinished(async () => void (await program.end()))
  await program.ready()
  writeFileSync(join(folder, 'deny.yaml'), DENY)
  const run = (...args: string[]) =>
    runProgram({ args: ['tunnels', ...args], cwd: folder, env: SERVICE })
  const json = async (...args: string[]) => JSON.parse((await run(...args, '--json')).stdout)
  return { folder, run, json }
}

/** A way to the agent in `folder` that calls `before` ahead of each PUT. Returns its data directory. */
async function slowWay(folder: string, before: () => Promise<unknown>): Promise<string> {
  const way = join(folder, 'way')
  mkdirSync(way)
  const server = createServer(async (incoming, response) => {
    if (incoming.method === 'PUT') await before()
    const { method, url: path, headers } = incoming
    const socketPath = join(folder, 'data', 'local.sock')
    const sent = request({ socketPath, method, path, headers }, (answer) => {
      response.writeHead(answer.statusCode ?? 0, answer.headers)
      answer.pipe(response)
    })
    incoming.pipe(sent)
  })
  onTestFinished(() => void server.close().closeAllConnections())
  await new Promise<void>((resolve) => server.listen(join(way, 'local.sock'), resolve))
  return way
}

describe('tunnels set', () => {
  it('changes what is given, and nothing else', async () => {
    const { run, json } = await startAgent()
    const options = ['--upstream-timeout', '9', '--health', '/alive', '--pooling', '--http2']
    await json('add', 'cam.site.test', '8001', '--policy', 'deny.yaml', ...options)
    const before = await json('show', 'cam')
    const moved = await run('set', 'cam', 'https://127.0.0.1:5001', '--no-verify-tls')
    expect([moved.code, moved.stdout]).toEqual([
      0,
      expect.stringMatching(/^https:\/\/cam\.site\.test: (?:offline|opening)\. \S/),
    ])
    expect(await json('show', 'cam')).toMatchObject({
      ...{ id: before.id, policy: before.policy, pooling_enabled: true },
      forwards_to: 'https://127.0.0.1:5001',
      upstream_settings: { timeout: 9, health: '/alive', http2: true, verify_tls: false },
    })
    const back = ['--verify-tls', '--no-http2', '--no-pooling', '--policy', 'default']
    const defaults = ['--upstream-timeout', 'default', '--health', 'default']
    const reset = await json('set', 'cam', ...back, ...defaults, '--max-connections', '3')
    expect(reset).toMatchObject({
      forwards_to: 'https://127.0.0.1:5001',
      pooling_enabled: false,
      policy: expect.stringContaining('rate-limit'),
      upstream_settings: { timeout: 60, health: 'tcp', verify_tls: true, max_connections: 3 },
    })
    expect(reset.upstream_settings.http2).toBe(false)
    const rest = await json('set', 'cam', '--max-connections', 'default', '--policy', 'deny.yaml')
    expect(rest.upstream_settings.max_connections).toBeUndefined()
    expect(rest.policy).toBe(before.policy)
  })

  it('gives the tunnel a new name, and keeps the rest', async () => {
    const { run, json } = await startAgent()
    await json('add', 'cam.site.test', '8001', '--upstream-timeout', '9')
    await json('add', 'nas.site.test', '8002')
    expect((await run('set', 'cam', '--domain', 'nas.site.test')).stderr).toContain('domain-taken')
    expect(await json('set', 'cam', '8003', '--domain', 'Garage.site.test')).toMatchObject({
      ...{ domain: 'garage.site.test', forwards_to: 'localhost:8003' },
      upstream_settings: { timeout: 9 },
    })
    const names = (await json('list')).map(({ domain }: { domain: string }) => domain)
    expect(names.toSorted()).toEqual(['garage.site.test', 'nas.site.test'])
  })

  it('does not overwrite a change that another program makes at the same time', async () => {
    const { folder, run, json } = await startAgent()
    await json('add', 'cam.site.test', '8001')
    const way = await slowWay(folder, () => run('set', 'cam', '--upstream-timeout', '7'))
    const late = await run('set', 'cam', '8002', '--data-dir', way)
    expect([late.code, late.stdout]).toEqual([1, ''])
    expect(late.stderr).toMatch(
      /precondition-failed\)\n {2}→ Another program changed the tunnel.*run the command again\.\n$/,
    )
    expect(await json('show', 'cam')).toMatchObject({
      forwards_to: 'localhost:8001',
      upstream_settings: { timeout: 7 },
    })
  })

  it('refuses a call that changes nothing, and says what is wrong with a value', async () => {
    const { run, json } = await startAgent()
    await json('add', 'cam.site.test', '8001')
    expect((await run('set', 'cam')).stderr).toBe(
      'error: Nothing to change. Set a service or an option.\n(run device-agent help tunnels set)\n',
    )
    expect((await run('set', 'cam', '--upstream-timeout', 'soon')).stderr).toContain(
      "error: option '--upstream-timeout <seconds>' argument 'soon' is invalid. It must be a number.",
    )
    expect((await run('set', 'none', '8001')).stderr).toContain('tunnel-not-found')
  })
})
