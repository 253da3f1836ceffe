import { mkdirSync, readdirSync, readFileSync, statSync, writeFileSync } from 'node:fs'
import { join } from 'node:path'
import { describe, expect, it } from 'vitest'
import { clockText } from '../../../src/cli/join/join-device.ts'
import { installedSystem } from '../../helpers/installed-system.ts'
import { joinPeer, welcome } from '../../helpers/join-peer.ts'
import type { Program } from '../../helpers/program.ts'
import { canMount, mountSmallDisk } from '../../helpers/small-disk.ts'

const ENV = 'etc/device-agent/agent.env'
const TOKEN = 'etc/credstore/svc-authtoken'

/** All texts of files below a folder. */
function textsBelow(folder: string): string {
  return readdirSync(folder, { recursive: true, withFileTypes: true })
    .filter((entry) => entry.isFile())
    .map((entry) => readFileSync(join(entry.parentPath, entry.name), 'utf8'))
    .join('\n')
}

// Only root may change the service.
describe.runIf(process.geteuid?.() === 0)('device-agent join, with the installed service', () => {
  it('writes settings, CA and authtoken, and starts the service', async () => {
    const [system, peer] = [installedSystem(), await joinPeer()]
    const string = peer.invite()
    const done = await system.run('join', string, '--wait', '0')
    expect(done).toMatchObject({ error: undefined, stdout: expect.stringContaining('started') })
    expect(system.calls()).toEqual([
      'show device-agent --property=LoadState',
      'enable device-agent',
      'restart device-agent',
    ])
    expect(system.read(TOKEN)).toBe('id_authtoken-of-cam-7\n')
    expect(system.read('etc/device-agent/ca.pem')?.trim()).toBe(peer.caPem.trim())
    expect(system.read(ENV)).toMatch(/\nAGENT_DOMAIN=agent\.cam-7\.site\.test\n/)
    expect(system.read(ENV)).toContain(`\nSVC_SERVER_ADDR=${peer.address}\n`)
    expect(statSync(join(system.root, ENV)).mode & 0o777).toBe(0o600)
    const secret = string.slice(0, 88)
    expect(`${done.stdout}${done.stderr}${textsBelow(system.root)}`).not.toContain(secret)
  })

  it('says that it has joined, and why there is no connection', async () => {
    const [system, peer] = [installedSystem({ hasAgent: true }), await joinPeer()]
    const done = await system.run('join', peer.invite(), '--wait', '4')
    expect(done.exitCode).toBe(1)
    expect(done.stderr).toContain('This device has joined as cam-7, but it is not connected yet.')
    // The reason is there once, and ends with one full stop.
    expect(done.stderr).toMatch(/\w+\. \w.*\n/)
    expect(done.stderr).not.toMatch(/[^.]\.\.( |\n)/)
    const lines = done.stderr.trim().split('\n')
    expect(new Set(lines).size).toBe(lines.length)
    expect(done.stderr).toContain('See device-agent status.')
    const again = await system.run('join', peer.invite(), '--wait', '1', '--json')
    expect(JSON.parse(again.stdout)).toMatchObject({
      ...{ name: 'cam-7', url: 'https://agent.cam-7.site.test', state: 'waiting' },
      problem: expect.any(String),
    })
  })

  it('says at once that systemd passes no credentials', async () => {
    const [system, peer] = [
      installedSystem({ hasAgent: true, passesCredentials: false }),
      await joinPeer(),
    ]
    const done = await system.run('join', peer.invite(), '--wait', '3600')
    expect(done.exitCode).toBe(1)
    expect(done.stderr).toMatch(
      /systemd did not pass the credential \S+ to the agent\. Set SVC_AUTHTOKEN in /,
    )
    expect(done.stderr).not.toContain('No authtoken is set')
  })

  it('gets its authtoken by the same claim after a lost answer', async () => {
    let hasLost = false
    const peer = await joinPeer({
      answer: () => {
        if (hasLost) return welcome('cam-7')
        hasLost = true
        return 'closed'
      },
    })
    const [system, string] = [installedSystem(), peer.invite()]
    const lost = await system.run('join', string, '--wait', '0')
    expect(lost.error).toContain('The answer was lost. Join again with the same join string')
    expect([system.read(TOKEN), system.read('etc/device-agent/ca.pem')]).toEqual([
      undefined,
      undefined,
    ])
    const found = await system.run('join', string, '--wait', '0')
    expect(found.error).toBeUndefined()
    expect(system.read(TOKEN)).toBe('id_authtoken-of-cam-7\n')
    expect(peer.claims).toHaveLength(2)
    expect(peer.claims[1]?.claim).toBe(peer.claims[0]?.claim)
    // From now on, the invitation is used, and the gateway is not asked again.
    const third = await system.run('join', string, '--wait', '0')
    expect(third.stderr).toContain('already used this invitation')
    expect(third.error).toBeUndefined()
    expect(peer.claims).toHaveLength(2)
  })

  it('ends its work when its terminal closes: an ssh session may lead through the own tunnel', async () => {
    const system = installedSystem({ hangsUp: true })
    const hangUp = ({ child }: Program) => {
      child.stdout?.destroy()
      child.stderr?.destroy()
      child.kill('SIGHUP')
    }
    const peer = await joinPeer({
      answer: () => {
        hangUp(joining)
        return welcome('cam-7')
      },
    })
    const joining = system.start('join', peer.invite(), '--wait', '0')
    expect(await joining.ended).toMatchObject({ code: 0, signal: null })
    expect(system.read(TOKEN)).toBe('id_authtoken-of-cam-7\n')
    // The terminal has ended systemctl, too.
    const called = system.calls().slice(1)
    expect(called.map((line) => line.split(' ')[0])).toEqual([
      ...['enable', 'enable'],
      ...['restart', 'restart'],
    ])
    const leaving = system.start('leave', '--yes')
    expect(await leaving.ended).toMatchObject({ code: 0, signal: null })
    expect(system.read(TOKEN)).toBeUndefined()
  })

  it('keeps its name when it joins the same gateway again', async () => {
    const [system, peer] = [installedSystem(), await joinPeer()]
    await system.run('join', peer.invite(), '--wait', '0')
    const again = await system.run('join', peer.invite(), '--wait', '0')
    expect(again.stderr).toContain(
      'already belongs to this gateway. It has a new authtoken and keeps its tunnels.',
    )
    expect(peer.claims.at(-1)?.hostname).toBe('cam-7')
    expect(peer.claims.map(({ earlier }) => earlier)).toEqual([undefined, 'id_authtoken-of-cam-7'])
    const named = await system.run('join', peer.invite(), '--wait', '0', '--name', 'cam-8')
    expect(peer.claims.at(-1)?.hostname).toBe('cam-8')
    expect(named.stderr).toContain('names this device cam-7, not cam-8. It changes a name that is')
  })

  it('says that it keeps its tunnels only after the gateway has agreed', async () => {
    let answer: object = welcome('cam-7')
    const [system, peer] = [installedSystem(), await joinPeer({ answer: () => answer })]
    const again = () => system.run('join', peer.invite(), '--wait', '0')
    await again()
    answer = { v: 1, error: 'name-refused', message: 'A device named cam-7 exists.' }
    const refused = await again()
    expect(refused.error).toContain('A device named cam-7 exists.')
    answer = { ...welcome('cam-7'), agent_url: 'https://cam-7.other.test' }
    const moved = await again()
    expect(moved.stderr).toContain('The gateway refuses tunnels with other names.')
    answer = welcome('cam-7-2')
    const renamed = await again()
    expect(renamed.stderr).toContain(
      'Its name was cam-7 and is now cam-7-2. The gateway refuses tunnels with the old name. To keep the name, join with an invitation of device-agent gateway invite --name cam-7.',
    )
    for (const { stderr } of [refused, moved, renamed]) {
      expect(stderr).not.toContain('keeps its tunnels')
    }
  })

  it('sends its authtoken only to a gateway with the CA that it has', async () => {
    const [system, peer] = [installedSystem(), await joinPeer()]
    await system.run('join', peer.invite(), '--wait', '0')
    const path = join(system.root, ENV)
    writeFileSync(path, readFileSync(path, 'utf8').replace(/^SVC_CA_CERT=.*$/m, ''))
    const again = await system.run('join', peer.invite(), '--wait', '0')
    expect(again.stderr).toContain('already belongs to this gateway')
    expect(peer.claims.map(({ earlier }) => earlier)).toEqual([undefined, undefined])
  })

  it('stays with its authtoken when the answer to another string was lost', async () => {
    let isLost = false
    const peer = await joinPeer({ answer: () => (isLost ? 'closed' : welcome('cam-7')) })
    const [system, string] = [installedSystem(), peer.invite()]
    await system.run('join', string, '--wait', '0')
    isLost = true
    expect((await system.run('join', peer.invite(), '--wait', '0')).error).toContain('was lost')
    // The gateway lets this authtoken in until the device uses the new one.
    expect(await system.run('join', string, '--wait', '0')).toMatchObject({
      error: undefined,
      stderr: expect.stringContaining('already used this invitation'),
    })
    expect(system.read(TOKEN)).toBe('id_authtoken-of-cam-7\n')
    expect(system.calls().at(-1)).toBe('restart device-agent')
  })

  it('still knows its join after a join with another string has failed', async () => {
    let isRefusing = false
    const used = { v: 1, error: 'used', message: 'The invitation was used.' }
    const peer = await joinPeer({ answer: () => (isRefusing ? used : welcome('cam-7')) })
    const [system, string] = [installedSystem(), peer.invite()]
    await system.run('join', string, '--wait', '0')
    isRefusing = true
    expect((await system.run('join', peer.invite(), '--wait', '0')).error).toContain('was used')
    const again = await system.run('join', string, '--wait', '0')
    expect(again).toMatchObject({
      error: undefined,
      stderr: expect.stringContaining('already used this invitation'),
    })
    expect(peer.claims).toHaveLength(2)
  })

  it('leaves another gateway only with --replace', async () => {
    const [system, one, two] = [installedSystem(), await joinPeer(), await joinPeer()]
    await system.run('join', one.invite(), '--wait', '0')
    const before = [system.read(ENV), system.read(TOKEN)]
    const refused = await system.run('join', two.invite(), '--wait', '0')
    expect(refused.error).toContain(`belongs to another gateway (${one.address})`)
    expect(refused.error).toContain('add --replace')
    expect([system.read(ENV), system.read(TOKEN)]).toEqual(before)
    expect(two.claims).toEqual([])
    const moved = await system.run('join', two.invite(), '--wait', '0', '--replace')
    expect(moved.error).toBeUndefined()
    expect(system.read(ENV)).toContain(`SVC_SERVER_ADDR=${two.address}\n`)
    expect(system.read('etc/device-agent/ca.pem')?.trim()).toBe(two.caPem.trim())
  })

  it('takes a device away from the hosted service only with --replace', async () => {
    const [system, peer] = [installedSystem(), await joinPeer()]
    writeFileSync(join(system.root, TOKEN), 'a-token-of-the-hosted-service\n')
    const refused = await system.run('join', peer.invite(), '--wait', '0')
    expect(refused.error).toContain('another gateway (the hosted service)')
    expect(system.read(TOKEN)).toBe('a-token-of-the-hosted-service\n')
  })

  it.each([
    ['no join string', ['hello'], 'This is not a join string.'],
    ['half a join string', ['dajoin1_abc'], 'The join string is incomplete.'],
    ['a newer one', ['dajoin2_abc@gw.test:1'], 'is of a newer gateway.'],
  ])('refuses %s, and changes nothing', async (_name, words, reason) => {
    const system = installedSystem()
    const { error } = await system.run('join', ...words)
    expect(error).toContain(reason)
    expect([system.read(ENV), system.read('etc/device-agent/join.json')]).toEqual([
      undefined,
      undefined,
    ])
  })

  it('takes a join string that was broken into words', async () => {
    const [system, peer] = [installedSystem(), await joinPeer()]
    const string = peer.invite()
    const done = await system.run(
      'join',
      string.slice(0, 40),
      ` ${string.slice(40)}`,
      '--wait',
      '0',
    )
    expect(done.error).toBeUndefined()
  })

  it('does not use an invitation for a service that cannot start', async () => {
    const [system, peer] = [installedSystem({ loadState: 'masked' }), await joinPeer()]
    const masked = await system.run('join', peer.invite())
    expect(masked.error).toContain('is masked, so it cannot start. Run systemctl unmask')
    const broken = installedSystem()
    await broken.run('join', peer.invite(), '--wait', '0')
    writeFileSync(join(broken.root, ENV), 'AGENT_MAX_TUNNELS=many\n')
    const flawed = await broken.run('join', peer.invite(), '--wait', '0')
    expect(flawed.error).toContain('AGENT_MAX_TUNNELS must be')
    expect(peer.claims).toHaveLength(1)
  })

  it('shows what it would do', async () => {
    const [system, peer] = [installedSystem(), await joinPeer()]
    const { stdout, error } = await system.run('join', peer.invite(), '--dry-run')
    expect(error).toBeUndefined()
    expect(stdout.replaceAll(system.root, '').split('\n')).toEqual([
      `would ask    ${peer.address}`,
      'would write  /etc/device-agent/ca.pem',
      'would write  /etc/device-agent/agent.env',
      'would write  /etc/credstore/svc-authtoken',
      'would run    systemctl enable device-agent',
      'would run    systemctl restart device-agent',
      '',
    ])
    expect([system.read(ENV), system.calls(), peer.claims]).toEqual([undefined, [], []])
  })

  it('joins with a wrong clock, and says so', async () => {
    const peer = await joinPeer({ now: Date.now() + 600_000 })
    const { stderr, error } = await installedSystem().run('join', peer.invite(), '--wait', '0')
    expect(error).toBeUndefined()
    expect(stderr).toContain('The clock of this device is 10 minutes behind the gateway.')
  })

  it('passes on the reason of the gateway', async () => {
    const message = 'The invitation was used at 2026-11-26T12:02:18Z by cam-9.'
    const peer = await joinPeer({ answer: () => ({ v: 1, error: 'used', message }) })
    const system = installedSystem()
    const { error } = await system.run('join', peer.invite())
    expect(error).toBe(`Cannot join.\n  ${peer.address}: ${message}`)
    expect([system.read(ENV), system.calls().length]).toEqual([undefined, 1])
  })

  it('leaves, says what stays, and has nothing to do the second time', async () => {
    const [system, peer] = [installedSystem(), await joinPeer()]
    await system.run('join', peer.invite(), '--wait', '0')
    writeFileSync(join(system.root, 'etc/device-agent/other.pem'), 'mine')
    writeFileSync(join(system.root, 'var/lib/device-agent/agent.db'), 'tunnels')
    const asked = await system.run('leave')
    expect(asked.error).toContain('its tunnels go offline. Add --yes')
    expect(system.read(TOKEN)).toBeDefined()
    const left = await system.run('leave', '--yes')
    expect(left.error).toBeUndefined()
    expect(system.calls().at(-1)).toBe('disable --now device-agent')
    expect(left.stdout).toContain(`This device has left ${peer.address}.`)
    expect(left.stdout).toContain('device-agent gateway revoke cam-7.')
    expect(left.stdout).toContain('Tunnels, API tokens and identity stay in')
    expect([system.read(TOKEN), system.read('etc/device-agent/ca.pem')]).toEqual([
      undefined,
      undefined,
    ])
    expect(system.read(ENV)).not.toMatch(/^(?:SVC|AGENT_DOMAIN)/m)
    expect(system.read('etc/device-agent/join.json')).toBeUndefined()
    expect(system.read('etc/device-agent/other.pem')).toBe('mine')
    expect(system.read('var/lib/device-agent/agent.db')).toBeDefined()
    const again = await system.run('leave', '--yes')
    expect(again.stdout).toContain('belongs to no gateway')
    const purged = await system.run('leave', '--yes', '--purge')
    expect(purged.stdout).toContain('All data of the agent was deleted.')
    expect(system.read('var/lib/device-agent/agent.db')).toBeUndefined()
  })
})

describe.runIf(canMount())('a purge of data on a disk of its own', () => {
  it('deletes the content, the lock at last, and says what it could not delete', async () => {
    const system = installedSystem()
    const { folder } = mountSmallDisk('1m', join(system.root, 'var/lib/device-agent'))
    for (const name of ['agent.db', 'agent.lock']) writeFileSync(join(folder, name), name)
    // A gateway of the same directory, and a folder of the file system, are not of the agent.
    for (const name of ['gateway', 'lost+found', 'policies', 'zone']) mkdirSync(join(folder, name))
    const inner = mountSmallDisk('64k', join(folder, 'zone'))
    const kept = ['gateway', 'lost+found']

    const failed = await system.run('leave', '--yes', '--purge')
    expect(failed.error).toContain(`Cannot delete ${inner.folder} (`)
    expect(failed.error).toContain('Then run this command again.')
    expect(readdirSync(folder).sort()).toEqual(['agent.lock', ...kept, 'zone'])
    inner.unmount()

    const purged = await system.run('leave', '--yes', '--purge')
    expect(purged).toMatchObject({
      error: undefined,
      stdout: expect.stringContaining('All data of the agent was deleted.'),
    })
    expect(readdirSync(folder).sort()).toEqual(kept)
    const again = await system.run('leave', '--yes', '--purge')
    expect(again.stdout).toContain('Nothing was changed.')
  })
})

describe('the difference of the clocks', () => {
  it.each([
    [59_000, undefined],
    [-61_000, '1 minute behind'],
    [7_200_000, '2 hours ahead of'],
    [-217_857_740_000, '2522 days behind'],
  ])('%d ms', (ms, text) => {
    const said = clockText(ms)
    expect(said === undefined ? said : said.slice(28).split(' the gateway')[0]).toBe(text)
  })
})
