import { rmSync } from 'node:fs'
import { join } from 'node:path'
import { describe, expect, it } from 'vitest'
import { eventually } from '../helpers/eventually.ts'
import { GatewayProgram } from '../helpers/gateway-program.ts'
import { listenAsServiceManager } from '../helpers/notify-socket.ts'
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
