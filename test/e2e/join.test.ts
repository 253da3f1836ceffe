import { describe, expect, it } from 'vitest'
import { GatewayProgram } from '../helpers/gateway-program.ts'
import { installedSystem } from '../helpers/installed-system.ts'
import { temporaryFolder } from '../helpers/temporary-folder.ts'

async function invitingGateway(env: Readonly<Record<string, string>> = {}) {
  const gateway = await GatewayProgram.start(temporaryFolder(), env)
  const invite = async (wish: object = {}) => {
    const body = { domain: '*.{name}.site.localhost', ...wish }
    const made = await gateway.manage('POST', '/invites', body)
    expect(made.status).toBe(201)
    return made.body as { readonly id: string; readonly join_string: string }
  }
  const names = async () => {
    const { body } = await gateway.manage('GET', '/devices')
    return body.devices.map(({ name }: { readonly name: string }) => name)
  }
  return { gateway, invite, names }
}

// Only root may change the service.
describe.runIf(process.geteuid?.() === 0)('a device with the installed service', () => {
  it('is connected by one line, joins again under its name, and leaves', async () => {
    const { gateway, invite, names } = await invitingGateway()
    const { port } = new URL(gateway.ready.ingress_https)
    const system = installedSystem({ hasAgent: true })
    const first = await invite({ name: 'cam-7' })
    const joined = await system.run('join', first.join_string)
    expect(joined).toMatchObject({
      error: undefined,
      stdout: `This device is connected as cam-7: https://agent.cam-7.site.localhost:${port}\n`,
    })
    expect(await names()).toEqual(['cam-7'])

    // The name is open this time, and the device keeps the name that it has.
    const again = await system.run('join', (await invite()).join_string, '--json')
    expect(JSON.parse(again.stdout)).toMatchObject({ name: 'cam-7', state: 'connected' })
    expect(await names()).toEqual(['cam-7'])

    const other = installedSystem()
    const used = await other.run('join', first.join_string)
    expect(used.error).toMatch(/^Cannot join\.\n {2}127\.0\.0\.1:\d+: .*used/)

    const left = await system.run('leave', '--yes')
    expect(left.stdout).toContain('device-agent gateway revoke cam-7')
    const log = `${system.read('log')}${gateway.program.stderr}`
    for (const secret of [first.join_string.slice(8, 60), first.join_string.slice(20, 42)]) {
      expect(log).not.toContain(secret)
    }
  })

  it('gets its name and its tunnels back by the remedy for a deleted authtoken', async () => {
    const { gateway, invite, names } = await invitingGateway()
    const system = installedSystem({ hasAgent: true })
    await system.run('join', (await invite({ name: 'cam-7' })).join_string)
    const { body } = await gateway.manage('GET', '/devices')
    await gateway.manage('DELETE', `/credentials/${body.devices[0].credential.id}`)
    const again = await system.run('join', (await invite({ name: 'cam-7' })).join_string)
    expect(again).toMatchObject({
      error: undefined,
      stdout: expect.stringMatching(/^This device is connected as cam-7: /),
      stderr: expect.stringContaining('It has a new authtoken and keeps its tunnels.'),
    })
    expect(await names()).toEqual(['cam-7'])
  })

  it('moves from one gateway to another one', async () => {
    const [one, two] = [await invitingGateway(), await invitingGateway()]
    const system = installedSystem({ hasAgent: true })
    await system.run('join', (await one.invite({ name: 'cam-7' })).join_string)
    const { join_string: string } = await two.invite({ name: 'cam-9' })
    const moved = await system.run('join', string, '--replace')
    expect(moved.stdout).toMatch(/^This device is connected as cam-9: /)
    expect(system.read('etc/device-agent/agent.env')).toContain(
      `SVC_SERVER_ADDR=${two.gateway.ready.agent_listen}\n`,
    )
  })
})
