import { readFileSync, writeFileSync } from 'node:fs'
import { join } from 'node:path'
import { parse } from 'dotenv'
import { describe, expect, it } from 'vitest'
import { eventually } from '../helpers/eventually.ts'
import { GatewayProgram, startRun } from '../helpers/gateway-program.ts'
import { runProgram } from '../helpers/program.ts'
import { temporaryFolder } from '../helpers/temporary-folder.ts'

/** A gateway, and the command as its owner types it on the same machine. */
async function startSite() {
  const folder = temporaryFolder()
  const gateway = await GatewayProgram.start(folder, { GATEWAY_CNAME_BASE: 'gateway.test' })
  const { management_api, agent_listen } = gateway.ready
  const provision = (args: readonly string[], env: Readonly<Record<string, string>> = {}) =>
    runProgram({
      args: ['provision', ...args],
      cwd: folder,
      env: {
        GATEWAY_DATA_DIR: join(folder, 'gateway'),
        GATEWAY_API_LISTEN: new URL(management_api).host,
        GATEWAY_AGENT_LISTEN: agent_listen,
        ...env,
      },
    })
  return { folder, gateway, provision }
}

describe('device-agent provision', () => {
  it('makes a file of settings with which a device comes up', async () => {
    const { folder, provision } = await startSite()
    const { code, stdout, stderr } = await provision(['--name', 'cam7', '--json'])
    expect(code).toBe(0)
    expect(stderr).toMatch(/^warning: devices on other machines cannot use 127\.0\.0\.1; .*\n$/)
    const { devices, dns_records } = JSON.parse(stdout)
    const [{ env_file, error }] = devices
    expect([devices.length, error, dns_records.length]).toEqual([1, null, 1])
    const settings = parse(readFileSync(env_file))
    expect(stdout).not.toContain(settings.SVC_AUTHTOKEN)
    const token = 'token-of-at-least-20-characters'
    const { agentApi } = await startRun(folder, { ...settings, AGENT_API_TOKEN: token })
    await eventually(async () => {
      const headers = { authorization: `Bearer ${token}` }
      expect((await fetch(`${agentApi}/readyz`, { headers })).status).toBe(200)
    })
  })

  it('says what it did, and that there is nothing left to do', async () => {
    const { provision } = await startSite()
    const args = ['--name', 'cam7', '--domain', '*.a.test', '--server-addr', 'gateway.lan:4443']
    const first = await provision(args)
    expect([first.code, first.stderr]).toEqual([0, ''])
    expect(first.stdout).toMatch(
      /^reserve +domain \*\.a\.test\ncreate +bot user cam7\ncreate +authtoken bind:cam7\.a\.test bind:\*\.cam7\.a\.test\nwrite +fleet-devices\.jsonl\nwrite +device cam7\nwrite +cam7\.env\n\nCreate these records .*\n\n {2}\*\.a\.test +CNAME +gateway\.test\n$/,
    )
    const second = await provision(args)
    expect(second.stdout.match(/^\w+/gm)?.slice(0, 5)).toEqual(Array(5).fill('keep'))
  })

  it('goes through a list, says which device failed, and ends with 1', async () => {
    const { folder, gateway, provision } = await startSite()
    await gateway.manage('POST', '/bot_users', { name: 'cam2', active: false })
    writeFileSync(join(folder, 'list.txt'), 'cam1\ncam2 # switched off\ncam3\n')
    const names = ['--list', 'list.txt', '--domain', '*.{name}.a.test']
    const args = [...names, '--output', 'devices', '--server-addr', 'gateway.lan:4443']
    const { code, stdout, stderr } = await provision(args)
    expect([code, stderr]).toEqual([
      1,
      'device-agent: cam2: The bot user cam2 is deactivated. Activate it first.\n',
    ])
    expect(stdout).toMatch(/^write +devices\/cam1\.env\nwrite +devices\/cam3\.env\n/m)
    const { AGENT_DOMAIN } = parse(readFileSync(join(folder, 'devices/cam3.env')))
    expect(AGENT_DOMAIN).toBe('agent.cam3.a.test')
  })

  it('says on another machine that the gateway is not there', async () => {
    const cwd = temporaryFolder()
    const { code, stderr } = await runProgram({
      args: ['gateway', 'invite', '--name', 'cam7'],
      cwd,
    })
    expect([code, stderr]).toEqual([
      1,
      expect.stringMatching(
        /^device-agent: No gateway has left its API key in \S+api-key\. Run this/,
      ),
    ])
  })

  it('takes the key from a file or a setting for an API elsewhere, and never guesses it', async () => {
    const { folder, gateway, provision } = await startSite()
    const { management_api, api_key_file } = gateway.ready
    const args = ['--api-url', management_api, '--domain', '*.a.test', '--name', 'cam7']
    const without = await provision(args)
    expect([without.code, without.stderr]).toEqual([
      1,
      expect.stringMatching(/^device-agent: API key required\./),
    ])
    expect((await provision([...args, '--key-stdin'])).stderr).toMatch(/contains no API key/)
    expect((await provision([...args, '--key-file', api_key_file])).code).toBe(0)
    const fromSetting = await provision(args, { SVC_API_KEY: gateway.apiKey })
    expect([fromSetting.code, fromSetting.stderr]).toEqual([0, ''])
    // Where the gateway is elsewhere, the settings do not lead to this machine.
    const settings = parse(readFileSync(join(folder, 'cam7.env')))
    expect(Object.keys(settings)).toEqual([
      'AGENT_DOMAIN',
      'SVC_AUTHTOKEN',
      'AGENT_API_TOKEN_SHA256',
    ])
  })

  it.each([
    [[], /^error: use --name for one device or --list for many/],
    [['--name', 'a', '--list', 'b'], /^error: option '--list <file>' cannot be used with/],
    [['--name', 'a', '--api-url', 'ftp://a.test'], /^error: .*Use a URL/],
    [['--name', 'a', '--server-addr', 'a'], /^error: .*must be host:port, or up to 5/],
    [['--name', 'a', '--server-addr', '[::1]:4443'], /^error: .*Write a host name of the gateway/],
  ])('calls %j wrong usage', async (args, sentence) => {
    const { code, stdout, stderr } = await runProgram({ args: ['provision', ...args] })
    expect([code, stdout]).toEqual([2, ''])
    expect(stderr).toMatch(sentence)
  })
})
