import { mkdirSync, readFileSync, rmSync, writeFileSync } from 'node:fs'
import { join } from 'node:path'
import { describe, expect, it, onTestFinished } from 'vitest'
import { startEchoUpstream } from '../helpers/echo-upstream.ts'
import { eventually } from '../helpers/eventually.ts'
import { GatewayProgram, type ManagementAnswer, startRun } from '../helpers/gateway-program.ts'
import { listenAsServiceManager } from '../helpers/notify-socket.ts'
import { publicRequest } from '../helpers/public-request.ts'
import type { GatewayReady } from '../helpers/site.ts'
import { SocketKeeper } from '../helpers/socket-keeper.ts'
import { temporaryFolder } from '../helpers/temporary-folder.ts'

const API_TOKEN = 'reload-token-of-at-least-20'

/** A gateway on the sockets of its service manager; `told` is what that one hears. */
async function startGateway() {
  const folder = temporaryFolder()
  const notify = join(folder, 'notify')
  const told = listenAsServiceManager(notify)
  const hosts = Array<string>(4).fill('127.0.0.1')
  const keeper = await SocketKeeper.open(
    ['gateway', '--json'],
    hosts,
    ([agent = '', http = '', https = '', api = '']) => ({
      GATEWAY_AGENT_LISTEN: agent,
      GATEWAY_HTTP_LISTEN: http,
      GATEWAY_HTTPS_LISTEN: https,
      GATEWAY_API_LISTEN: api,
      GATEWAY_DATA_DIR: join(folder, 'gateway'),
      LOG_LEVEL: 'info',
      NOTIFY_SOCKET: notify,
    }),
    folder,
  )
  const started = await keeper.start()
  const ready = started.ready as GatewayReady
  let pid = started.pid
  onTestFinished(async () => {
    process.kill(pid, 'SIGKILL')
    if (pid === started.pid) await keeper.ended()
    await keeper.stop()
  })
  const key = readFileSync(ready.api_key_file, 'utf8').trim()
  const manage = async (method: string, path: string, body?: object) => {
    const answer = await fetch(`${ready.management_api}${path}`, {
      method,
      headers: {
        authorization: `Bearer ${key}`,
        'svc-version': '2',
        // A request on a kept connection can meet its end (RFC 9112 9.3.1), and a POST is not repeated.
        connection: 'close',
        ...(body && { 'content-type': 'application/json' }),
      },
      ...(body && { body: JSON.stringify(body) }),
    })
    const { status, headers } = answer
    return { status, headers, body: (await answer.json()) as ManagementAnswer['body'] }
  }
  return {
    folder,
    told,
    keeper,
    ready,
    manage,
    reload: () => process.kill(pid, 'SIGHUP'),
    /** Resolves with the process that the service manager watches from now on. */
    successor: () =>
      eventually(() => {
        const line = told.filter((text) => text.startsWith('MAINPID=')).at(-1)
        const next = Number(line?.replace('MAINPID=', ''))
        expect(next).toBeGreaterThan(0)
        expect(next).not.toBe(pid)
        pid = next
        return next
      }),
  }
}

describe('a reload of the gateway', () => {
  it('puts a new process in its place, and no visitor waits for nothing', async () => {
    const { folder, told, keeper, ready, reload, successor, manage } = await startGateway()
    const upstream = await startEchoUpstream()
    onTestFinished(() => upstream.close())
    const { agentApi } = await startRun(folder, {
      AGENT_API_TOKEN: API_TOKEN,
      SVC_AUTHTOKEN_FILE: ready.authtoken_file,
      SVC_SERVER_ADDR: ready.agent_listen,
      SVC_CA_CERT: ready.ca_cert,
    })
    const host = 'cam.site.localhost'
    const created = await fetch(`${agentApi}/tunnels`, {
      method: 'POST',
      headers: { authorization: `Bearer ${API_TOKEN}`, 'content-type': 'application/json' },
      body: JSON.stringify({
        protocol: 'http',
        forwards_to: `localhost:${upstream.port}`,
        domain: host,
        // The default policy has a limit, and these visitors do not count theirs.
        policy: {},
      }),
    })
    expect(created.ok).toBe(true)
    const visit = () => publicRequest({ ingress: ready.ingress_http, host })
    await eventually(async () => expect((await visit()).status).toBe(200))

    let isOver = false
    const outcomes: number[] = []
    const visitors = Array.from({ length: 4 }, async () => {
      while (!isOver) outcomes.push((await visit()).status)
    })
    const changes: { name: string; status: number; retryAfter: string | null }[] = []
    const manager = (async () => {
      for (let number = 1; !isOver; number += 1) {
        const name = `fleet ${number}`
        const { status, headers } = await manage('POST', '/bot_users', { name })
        changes.push({ name, status, retryAfter: headers.get('retry-after') })
        // No more than one list shows in the end, however long a busy machine needs for a reload.
        await new Promise((resolve) => setTimeout(resolve, number < 20 ? 50 : 1_000))
      }
    })()
    await eventually(() => expect(changes.length).toBeGreaterThan(3))
    reload()
    // The first program has ended whole, and nobody waited for its end.
    expect(await keeper.ended()).toBe(0)
    await successor()
    const before = outcomes.length
    await eventually(() => expect(outcomes.length).toBeGreaterThan(before + 20))
    isOver = true
    await Promise.all([...visitors, manager])
    expect(new Set(outcomes)).toEqual(new Set([200]))

    for (const { status, retryAfter } of changes) {
      expect([status, retryAfter]).toEqual(status === 201 ? [201, null] : [503, '1'])
    }
    const { body } = await manage('GET', '/bot_users?limit=100')
    const kept = body.bot_users.map(({ name }: { name: string }) => name)
    for (const { name, status } of changes) if (status === 201) expect(kept).toContain(name)

    expect(told.filter((text) => text.startsWith('RELOADING=1'))).toHaveLength(1)
    expect(told.filter((text) => text.startsWith('READY=1'))).toHaveLength(2)
    expect(told.filter((text) => text.startsWith('STOPPING=1'))).toHaveLength(0)
    expect(keeper.stderr).toContain('the new process has taken over')
    expect(keeper.stderr).not.toContain('the reload failed')
  })

  it.each([
    ['settings that are wrong', { GATEWAY_MAX_TUNNELS: '5' }, /GATEWAY_MAX_TUNNELS/],
    // Found out when the new process has the data folder already.
    [
      'a certificate that is not there',
      { GATEWAY_TLS_CERT: 'no.pem', GATEWAY_TLS_KEY: 'no.key' },
      /no\.pem/,
    ],
  ])('is called off for %s, and the old process serves on', async (_, settings, reason) => {
    const { folder, told, keeper, ready, reload, manage, successor } = await startGateway()
    const lines = Object.entries(settings).map(([name, value]) => `${name}=${value}\n`)
    writeFileSync(join(folder, '.env'), lines.join(''))
    reload()
    await eventually(() => {
      const last = told.filter((text) => text.startsWith('READY=1')).at(-1)
      expect(last).toContain('; the reload failed: the new process cannot start: ')
      expect(last).toMatch(reason)
    })
    expect(keeper.stderr).toMatch(reason)
    expect(keeper.stderr).toContain('the reload failed, this process continues')
    expect((await publicRequest({ ingress: ready.ingress_http, host: 'x.localhost' })).status).toBe(
      404,
    )
    expect((await manage('POST', '/bot_users', { name: 'fleet' })).status).toBe(201)

    rmSync(join(folder, '.env'))
    reload()
    expect(await keeper.ended()).toBe(0)
    await successor()
    const { body } = await manage('GET', '/bot_users')
    expect(body.bot_users).toContainEqual(expect.objectContaining({ name: 'fleet' }))
    expect(keeper.stderr).not.toContain('damaged')
  })

  it('reads the folder of error pages again, and refuses a page that is faulty', async () => {
    const { folder, told, keeper, ready, reload, successor } = await startGateway()
    const pages = join(folder, 'pages')
    mkdirSync(pages)
    const page = join(pages, 'unknown.html')
    writeFileSync(join(folder, '.env'), `GATEWAY_ERROR_PAGES=${pages}\n`)
    const see = async () => {
      const headers = { accept: 'text/html' }
      return (await publicRequest({ ingress: ready.ingress_http, host: 'no.test', headers })).text
    }
    writeFileSync(page, 'first {{host}}')
    reload()
    expect(await keeper.ended()).toBe(0)
    await successor()
    expect(await see()).toBe('first no.test')

    writeFileSync(page, 'second {{upstream}}')
    reload()
    await eventually(() => {
      const last = told.filter((text) => text.startsWith('READY=1')).at(-1)
      expect(last).toMatch(/the reload failed: .*unknown\.html: Line 1, column 8: /)
    })
    expect(await see()).toBe('first no.test')

    writeFileSync(page, 'third {{host}}')
    reload()
    await successor()
    await eventually(async () => expect(await see()).toBe('third no.test'))
  })

  it('needs sockets that outlive a process, and says so', async () => {
    const folder = temporaryFolder()
    const notify = join(folder, 'notify')
    const told = listenAsServiceManager(notify)
    const gateway = await GatewayProgram.start(folder, { NOTIFY_SOCKET: notify })
    gateway.program.child.kill('SIGHUP')
    await eventually(() => {
      expect(told.at(-1)).toMatch(/^READY=1\n.*a reload needs device-gateway\.socket to listen on /)
    })
    expect((await gateway.visit('x.localhost')).status).toBe(404)
  })
})
