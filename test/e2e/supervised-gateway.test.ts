import { rmSync } from 'node:fs'
import { join } from 'node:path'
import { describe, expect, it, onTestFinished } from 'vitest'
import { eventually } from '../helpers/eventually.ts'
import { GatewayProgram } from '../helpers/gateway-program.ts'
import { listenAsServiceManager } from '../helpers/notify-socket.ts'
import { Program } from '../helpers/program.ts'
import { temporaryFolder } from '../helpers/temporary-folder.ts'

describe('device-agent gateway', () => {
  it('tells its service manager when it is ready, how it is, and when it stops', async () => {
    const folder = temporaryFolder()
    const notify = join(folder, 'notify')
    const told = listenAsServiceManager(notify)
    const gateway = await GatewayProgram.start(folder, {
      NOTIFY_SOCKET: notify,
      WATCHDOG_USEC: '100000',
    })
    await eventually(() =>
      expect(told).toContain('READY=1\nSTATUS=0 agents connected, 0 endpoints online'),
    )
    await eventually(() => expect(told).toContain('WATCHDOG=1'))
    const policy = JSON.stringify({ on_http_request: [{ actions: [{ type: 'deny' }] }] })
    const front = { url: 'https://front.site.localhost', type: 'cloud', traffic_policy: policy }
    expect((await gateway.manage('POST', '/endpoints', front)).status).toBe(201)
    // The line is also renewed each 10 s.
    await eventually(
      () => expect(told).toContain('STATUS=0 agents connected, 1 endpoint online'),
      6_000,
    )
    expect(await gateway.program.end()).toMatchObject({ code: 0 })
    await eventually(() => expect(told).toContain('STOPPING=1\nSTATUS=stopping'))
  })

  it('counts an agent with two sessions once', async () => {
    const folder = temporaryFolder()
    const notify = join(folder, 'notify')
    const told = listenAsServiceManager(notify)
    const gateway = await GatewayProgram.start(folder, { NOTIFY_SOCKET: notify })
    const { agent_listen: address, ca_cert: ca, authtoken_file: token } = gateway.ready
    // As in the join string of a server: its name and its address.
    const servers = [address, address.replace('127.0.0.1', 'localhost')]
    const agent = new Program({
      args: ['run', '--json'],
      cwd: folder,
      env: {
        ...{ AGENT_DATA_DIR: join(folder, 'agent'), SVC_SERVER_ADDR: servers.join() },
        ...{ SVC_CA_CERT: ca, SVC_AUTHTOKEN_FILE: token },
      },
    })
    onTestFinished(() => agent.end().then(() => undefined))
    await agent.ready()
    await eventually(async () => {
      const { body } = await gateway.manage('GET', '/tunnel_sessions')
      expect(body.tunnel_sessions).toHaveLength(2)
    })
    // The line is also renewed each 10 s.
    told.length = 0
    await eventually(() => expect(told.join('\n')).toMatch(/STATUS=\d+ agents? connected/))
    expect(told.join('\n')).toContain('STATUS=1 agent connected')
  })

  it('ends for a new process when its database is taken away', async () => {
    const folder = temporaryFolder()
    const gateway = await GatewayProgram.start(folder)
    rmSync(join(folder, 'gateway', 'gateway.db'))
    const refused = await gateway.manage('POST', '/bot_users', { name: 'fleet' })
    expect(refused).toMatchObject({
      status: 503,
      body: { msg: expect.stringContaining('database is damaged') },
    })
    expect(await gateway.program.ended).toMatchObject({ code: 75 })
    expect(gateway.program.stderr).toContain('this process must be replaced')
  })
})
