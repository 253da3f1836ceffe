import { existsSync, mkdirSync, readFileSync, rmSync, statSync, writeFileSync } from 'node:fs'
import { join } from 'node:path'
import { parse } from 'dotenv'
import { describe, expect, it, onTestFinished, vi } from 'vitest'
import { StartError } from '../../../src/base/app-error.ts'
import { hashToken } from '../../../src/base/secret.ts'
import { Account } from '../../../src/cli/provision/account.ts'
import { DeviceList } from '../../../src/cli/provision/device-list.ts'
import { ManagementClient } from '../../../src/cli/provision/management-client.ts'
import { type ProvisionAllOptions, provisionAll } from '../../../src/cli/provision/provision-all.ts'
import type { DevicePlan } from '../../../src/cli/provision/provision-device.ts'
import {
  describeProvision,
  describeUnknown,
  dnsRecords,
} from '../../../src/cli/provision/provision-text.ts'
import { eventually } from '../../helpers/eventually.ts'
import { startManagementApi } from '../../helpers/management-client.ts'
import { temporaryFolder } from '../../helpers/temporary-folder.ts'

/** The real management API, and runs of the command against it as if in a process each. */
async function startSite() {
  const api = await startManagementApi()
  const folder = temporaryFolder()
  const plan = (name: string, changes: Partial<DevicePlan> = {}): DevicePlan => ({
    name,
    domain: '*.site.test',
    hasOwnDomain: false,
    agentDomain: `${name}.site.test`,
    tags: undefined,
    envPath: join(folder, `${name}.env`),
    authtokenPath: undefined,
    serverAddr: undefined,
    caCertPath: undefined,
    ...changes,
  })
  const done: string[] = []
  const run = async (
    devices: readonly DevicePlan[],
    how: Partial<Pick<ProvisionAllOptions, 'mode' | 'dryRun'>> = {},
  ) => {
    const client = new ManagementClient({
      baseUrl: new URL(api.baseUrl),
      apiKey: api.key,
      clock: api.clock,
      stop: new AbortController().signal,
    })
    const account = await Account.open(client)
    const onDone = (name: string) => done.push(name)
    const list = DeviceList.read(join(folder, 'fleet-devices.jsonl'))
    const usual = { mode: 'provision', dryRun: false } as const
    return provisionAll({ account, devices, list, ...usual, onDone, ...how })
  }
  const envOf = (name: string) => parse(readFileSync(join(folder, `${name}.env`)))
  const listed = (name: string) => DeviceList.read(join(folder, 'fleet-devices.jsonl')).get(name)
  return { ...api, folder, plan, run, envOf, listed, done }
}

const actionsOf = ({ devices }: Awaited<ReturnType<typeof provisionAll>>) =>
  devices.map(({ steps }) => steps.map(({ action }) => action).join(' '))
const errorsOf = ({ devices }: Awaited<ReturnType<typeof provisionAll>>) =>
  devices.map(({ error }) => error)

describe('provisioning one device', () => {
  it('makes domain, bot user and an authtoken that may bind below the domain alone', async () => {
    const { run, plan, envOf, listed, authority, domains, botUsers, credentials, folder } =
      await startSite()
    const result = await run([plan('cam1', { serverAddr: 'gw.test:4443', caCertPath: '/ca.pem' })])
    expect(errorsOf(result)).toEqual([undefined])
    const { SVC_AUTHTOKEN = '', AGENT_API_TOKEN_SHA256, ...settings } = envOf('cam1')
    expect(AGENT_API_TOKEN_SHA256).toBe(hashToken(listed('cam1')?.apiToken.reveal() ?? ''))
    expect(settings).toEqual({
      AGENT_DOMAIN: 'cam1.site.test',
      SVC_SERVER_ADDR: 'gw.test:4443',
      SVC_CA_CERT: '/ca.pem',
    })
    expect(statSync(join(folder, 'cam1.env')).mode & 0o777).toBe(0o600)
    const { id, acl, ownerId } = authority.authenticate(SVC_AUTHTOKEN)
    const rules = ['bind:cam1.site.test', 'bind:*.cam1.site.test']
    expect([id, acl]).toEqual([result.devices[0]?.credentialId, rules])
    expect(botUsers.findByName('cam1')?.id).toBe(ownerId)
    expect(domains.find('*.site.test')).toBeDefined()
    expect(credentials.page({ limit: 10 })).toHaveLength(1)
  })

  it('names the DNS record of a domain that needs none for challenges', async () => {
    const { run, plan, call } = await startSite()
    const { domains } = await run([plan('cam1')])
    const [reserved] = (await call('GET', '/reserved_domains')).body.reserved_domains
    const { cname_target, acme_challenge_cname_target } = reserved
    const record = { type: 'CNAME', name: '*.site.test', value: cname_target }
    expect(dnsRecords(domains)).toEqual([record])
    const withPolicy = (challenge: string) =>
      domains.map((domain) => ({
        ...domain,
        certificate_management_policy: { authority: 'letsencrypt', challenge },
      }))
    expect(dnsRecords(withPolicy('on-demand'))).toEqual([record])
    expect(dnsRecords(withPolicy('dns-01'))).toEqual([
      record,
      { type: 'CNAME', name: '_acme-challenge.site.test', value: acme_challenge_cname_target },
    ])
  })

  it('changes nothing the second time', async () => {
    const { run, plan, folder, credentials } = await startSite()
    await run([plan('cam1')])
    const path = join(folder, 'cam1.env')
    const before = [readFileSync(path, 'utf8'), statSync(path).ino]
    const again = await run([plan('cam1')])
    expect(again.domainSteps).toEqual([{ action: 'keep', subject: 'domain *.site.test' }])
    expect(actionsOf(again)).toEqual(['keep keep keep keep'])
    expect([readFileSync(path, 'utf8'), statSync(path).ino]).toEqual(before)
    expect(credentials.page({ limit: 10 })).toHaveLength(1)
  })

  it('writes settings anew without touching the authtoken', async () => {
    const { run, plan, envOf } = await startSite()
    await run([plan('cam1')])
    const { SVC_AUTHTOKEN } = envOf('cam1')
    const again = await run([plan('cam1', { agentDomain: 'api.site.test' })])
    expect(actionsOf(again)).toEqual(['keep keep write write'])
    expect(envOf('cam1')).toMatchObject({ AGENT_DOMAIN: 'api.site.test', SVC_AUTHTOKEN })
  })

  it('removes the authtoken of an interrupted join, which would win', async () => {
    const { run, plan, envOf, folder } = await startSite()
    writeFileSync(join(folder, 'cam1.env'), 'SVC_AUTHTOKEN_JOINED=earlier\n', { mode: 0o600 })
    await run([plan('cam1')])
    expect(envOf('cam1')).not.toHaveProperty('SVC_AUTHTOKEN_JOINED')
    expect(envOf('cam1').SVC_AUTHTOKEN).toMatch(/./)
  })

  it('keeps the authtoken in a file of its own when told so', async () => {
    const { run, plan, envOf, authority, folder } = await startSite()
    const authtokenPath = join(folder, 'secrets/authtoken')
    await run([plan('cam1', { authtokenPath })])
    expect(envOf('cam1')).toEqual({
      AGENT_DOMAIN: 'cam1.site.test',
      SVC_AUTHTOKEN_FILE: authtokenPath,
      AGENT_API_TOKEN_SHA256: expect.stringMatching(/^[0-9a-f]{64}$/),
    })
    expect(statSync(authtokenPath).mode & 0o777).toBe(0o600)
    expect(authority.authenticate(readFileSync(authtokenPath, 'utf8').trim()).id).toMatch(/^cr_/)
    expect(actionsOf(await run([plan('cam1', { authtokenPath })]))).toEqual(['keep keep keep keep'])
  })

  it('replaces a lost authtoken only when told so, and revokes the lost one then', async () => {
    const { run, plan, envOf, folder, authority, credentials } = await startSite()
    await run([plan('cam1')])
    const lost = envOf('cam1').SVC_AUTHTOKEN ?? ''
    rmSync(join(folder, 'cam1.env'))
    const [error] = errorsOf(await run([plan('cam1')]))
    expect(error).toMatch(
      /cam1 has an authtoken that is not in .*replace it with --rotate --name cam1/,
    )
    expect(existsSync(join(folder, 'cam1.env'))).toBe(false)
    authority.authenticate(lost)

    expect(errorsOf(await run([plan('cam1')], { mode: 'rotate' }))).toEqual([undefined])
    expect(() => authority.authenticate(lost)).toThrow()
    authority.authenticate(envOf('cam1').SVC_AUTHTOKEN ?? '')
    expect(credentials.page({ limit: 10 })).toHaveLength(1)
  })

  it('moves a device to another domain only when told so, and takes the old one from it', async () => {
    const { run, plan, envOf, authority, credentials } = await startSite()
    await run([plan('cam1')])
    const before = envOf('cam1').SVC_AUTHTOKEN ?? ''
    const moved = plan('cam1', { domain: '*.other.test', agentDomain: 'cam1.other.test' })
    expect(errorsOf(await run([moved]))).toEqual([
      expect.stringMatching(/Replace it with --rotate --name cam1/),
    ])
    expect(errorsOf(await run([moved], { mode: 'rotate' }))).toEqual([undefined])
    expect(() => authority.authenticate(before)).toThrow()
    const { acl } = authority.authenticate(envOf('cam1').SVC_AUTHTOKEN ?? '')
    const rules = ['bind:cam1.other.test', 'bind:*.cam1.other.test']
    expect([acl, credentials.page({ limit: 10 }).length]).toEqual([rules, 1])
  })

  it('replaces by itself an authtoken that was lost on its way, and no other', async () => {
    const { run, plan, envOf, listed, authority, credentials, folder } = await startSite()
    await run([plan('cam1')])
    const kept = [envOf('cam1').SVC_AUTHTOKEN, listed('cam1')?.apiToken.reveal()]
    const { issue } = Account.prototype
    const lossy = vi.spyOn(Account.prototype, 'issue').mockImplementation(async function (
      this: Account,
      ...request
    ) {
      await issue.apply(this, request)
      throw new StartError('The answer was lost.')
    })
    expect(errorsOf(await run([plan('cam2')]))).toEqual(['The answer was lost.'])
    const rotated = await run([plan('cam1')], { mode: 'rotate' })
    expect(errorsOf(rotated)).toEqual(['The answer was lost.'])
    lossy.mockRestore()
    expect(credentials.page({ limit: 9 })).toHaveLength(3)
    expect(listed('cam2')).toBeUndefined()

    // The file of a device that is out there is gone: what it had before stays good.
    const path = join(folder, 'cam1.env')
    const text = readFileSync(path)
    rmSync(path)
    expect(errorsOf(await run([plan('cam1')]))).toEqual([
      expect.stringMatching(/eplace it with --rotate --name cam1/),
    ])
    authority.authenticate(kept[0] ?? '')
    writeFileSync(path, text, { mode: 0o600 })

    const again = await run([plan('cam1'), plan('cam2')])
    expect(actionsOf(again)).toEqual([
      'keep keep write keep revoke',
      'keep create write write write revoke',
    ])
    expect([envOf('cam1').SVC_AUTHTOKEN, listed('cam1')?.apiToken.reveal()]).toEqual(kept)
    expect(credentials.page({ limit: 9 })).toHaveLength(2)
    for (const name of ['cam1', 'cam2']) {
      authority.authenticate(envOf(name).SVC_AUTHTOKEN ?? '')
      const hash = hashToken(listed(name)?.apiToken.reveal() ?? '')
      expect(envOf(name).AGENT_API_TOKEN_SHA256).toBe(hash)
    }
    expect(actionsOf(await run([plan('cam1'), plan('cam2')]))).toEqual([
      'keep keep keep keep',
      'keep keep keep keep',
    ])
  })

  it('ends the authtokens of before also when it was stopped before it came to that', async () => {
    const { run, plan, envOf, authority, listed, credentials } = await startSite()
    await run([plan('cam1')])
    const before = [envOf('cam1').SVC_AUTHTOKEN ?? '', listed('cam1')?.apiToken.reveal()]
    const stopped = vi.spyOn(Account.prototype, 'revoke').mockImplementation(() => {
      throw new StartError('Stopped.')
    })
    expect(errorsOf(await run([plan('cam1')], { mode: 'rotate' }))).toEqual(['Stopped.'])
    stopped.mockRestore()
    const after = envOf('cam1').SVC_AUTHTOKEN ?? ''
    expect(after).not.toBe(before[0])
    // The device has the old one until somebody brings it the file.
    expect(listed('cam1')?.apiToken.reveal()).toBe(before[1])
    expect(actionsOf(await run([plan('cam1')]))).toEqual(['keep keep write write keep revoke'])
    expect(() => authority.authenticate(before[0] ?? '')).toThrow()
    authority.authenticate(after)
    expect(credentials.page({ limit: 9 })).toHaveLength(1)
    const hash = hashToken(listed('cam1')?.apiToken.reveal() ?? '')
    expect(envOf('cam1').AGENT_API_TOKEN_SHA256).toBe(hash)
    expect(actionsOf(await run([plan('cam1')]))).toEqual(['keep keep keep keep'])
  })

  it('keeps what a device was given before the list was told', async () => {
    const { run, plan, envOf, listed } = await startSite()
    const full = vi
      .spyOn(DeviceList.prototype, 'put')
      .mockRejectedValue(new StartError('The disk is full.'))
    expect(errorsOf(await run([plan('cam1')]))).toEqual(['The disk is full.'])
    full.mockRestore()
    const before = envOf('cam1')
    expect(actionsOf(await run([plan('cam1')]))).toEqual(['keep keep write write keep'])
    expect(envOf('cam1')).toEqual(before)
    const hash = hashToken(listed('cam1')?.apiToken.reveal() ?? '')
    expect(before.AGENT_API_TOKEN_SHA256).toBe(hash)
  })

  it('does not throw away an authtoken that was issued elsewhere', async () => {
    const { run, plan, folder, credentials } = await startSite()
    writeFileSync(join(folder, 'cam1.env'), 'SVC_AUTHTOKEN=of_another_service\n', { mode: 0o600 })
    const [error] = errorsOf(await run([plan('cam1')]))
    expect(error).toMatch(
      /was not issued here for cam1 and \*\.site\.test\. Replace it with --rotate --name cam1/,
    )
    expect(credentials.page({ limit: 10 })).toEqual([])
  })

  it('leaves no authtoken behind that nobody has', async () => {
    const { run, plan, folder, credentials } = await startSite()
    const authtokenPath = join(folder, 'authtoken')
    // In the way of the temporary file that every durable write begins with.
    mkdirSync(`${authtokenPath}.${process.pid}.tmp`)
    const [error] = errorsOf(await run([plan('cam1', { authtokenPath })]))
    expect(error).toMatch(/Cannot write .*authtoken/)
    expect(credentials.page({ limit: 10 })).toEqual([])
  })

  it('leaves the device an authtoken that is good when its settings cannot be written', async () => {
    const { run, plan, folder, authority, envOf, listed } = await startSite()
    const authtokenPath = join(folder, 'authtoken')
    const device = plan('cam1', { authtokenPath })
    await run([device])
    const replaced = envOf('cam1').AGENT_API_TOKEN_SHA256
    const before = readFileSync(authtokenPath, 'utf8')
    // In the way of the temporary file that every durable write begins with.
    const inTheWay = `${device.envPath}.${process.pid}.tmp`
    mkdirSync(inTheWay)
    const moved = { ...device, agentDomain: 'api.site.test' }
    expect(errorsOf(await run([moved], { mode: 'rotate' }))).toEqual([
      expect.stringMatching(/Cannot write .*cam1\.env/),
    ])
    const after = readFileSync(authtokenPath, 'utf8')
    expect(after).not.toBe(before)
    authority.authenticate(after.trim())
    rmSync(inTheWay, { recursive: true })
    expect(actionsOf(await run([moved]))).toEqual(['keep keep write write write revoke'])
    expect(envOf('cam1').AGENT_DOMAIN).toBe('api.site.test')
    // With the authtokens of before its API token has ended, too.
    const hash = hashToken(listed('cam1')?.apiToken.reveal() ?? '')
    expect(envOf('cam1').AGENT_API_TOKEN_SHA256).toBe(hash)
    expect(hash).not.toBe(replaced)
  })

  it('does not switch a bot user on that somebody switched off', async () => {
    const { run, plan, issuer } = await startSite()
    await issuer.createBotUser({ name: 'cam1', active: false })
    expect(errorsOf(await run([plan('cam1')]))).toEqual([
      'The bot user cam1 is deactivated. Activate it first.',
    ])
  })

  it('keeps the API token of a device with its tags, and gives the same one again', async () => {
    const { run, plan, listed, envOf, folder } = await startSite()
    await run([plan('cam1', { tags: ['berlin', 'camera'] })])
    const first = listed('cam1')
    expect(first).toMatchObject({ agentDomain: 'cam1.site.test', tags: ['berlin', 'camera'] })
    // The file went to the device, and another one is wanted.
    const { SVC_AUTHTOKEN } = envOf('cam1')
    writeFileSync(join(folder, 'cam1.env'), `SVC_AUTHTOKEN=${SVC_AUTHTOKEN}\n`)
    await run([plan('cam1')])
    expect(listed('cam1')).toEqual(first)
    expect(envOf('cam1').AGENT_API_TOKEN_SHA256).toBe(hashToken(first?.apiToken.reveal() ?? ''))
    await run([plan('cam1')], { mode: 'rotate' })
    expect(listed('cam1')?.apiToken.reveal()).not.toBe(first?.apiToken.reveal())
    expect(listed('cam1')?.tags).toEqual(['berlin', 'camera'])
  })

  it('makes no second API token for one that is in another list', async () => {
    const { run, plan, folder } = await startSite()
    await run([plan('cam1')])
    rmSync(join(folder, 'fleet-devices.jsonl'))
    expect(errorsOf(await run([plan('cam1')]))).toEqual([
      expect.stringMatching(/The API token of .*cam1\.env is not in .*fleet-devices\.jsonl/),
    ])
  })

  it('names the device at the gateway, with its tags', async () => {
    const { run, plan, call } = await startSite()
    const devices = async () =>
      (await call('GET', '/devices')).body.devices.map(
        ({ name, tags, provisioned }: { name: string; tags: string[]; provisioned: boolean }) =>
          `${name} ${tags.join()} ${provisioned}`,
      )
    await run([plan('cam1', { tags: ['berlin'] }), plan('cam2')])
    expect((await devices()).sort()).toEqual(['cam1 berlin true', 'cam2  true'])
    await run([plan('cam1', { tags: ['bonn', 'berlin'] }), plan('cam2')])
    expect((await devices()).sort()).toEqual(['cam1 berlin,bonn true', 'cam2  true'])
    expect(actionsOf(await run([plan('cam1')]))).toEqual(['keep keep keep keep'])
  })

  it('takes a device out of service, and again, with nothing of it left', async () => {
    const { run, plan, authority, envOf, listed, folder, botUsers, credentials } = await startSite()
    await run([plan('cam1'), plan('cam2')])
    const authtoken = envOf('cam1').SVC_AUTHTOKEN ?? ''
    const dry = await run([plan('cam1')], { mode: 'retire', dryRun: true })
    expect(actionsOf(dry)).toEqual(['revoke delete delete write'])
    authority.authenticate(authtoken)
    expect(actionsOf(await run([plan('cam1')], { mode: 'retire' }))).toEqual([
      'revoke delete delete write',
    ])
    expect(() => authority.authenticate(authtoken)).toThrow()
    expect(botUsers.findByName('cam1')).toBeUndefined()
    expect([existsSync(join(folder, 'cam1.env')), listed('cam1')]).toEqual([false, undefined])
    expect([credentials.page({ limit: 9 }).length, listed('cam2')?.name]).toEqual([1, 'cam2'])
    const named = { domain: '*.cam3.site.test', agentDomain: 'agent.cam3.site.test' }
    await run([plan('cam3', { ...named, hasOwnDomain: true })])
    const { domainSteps } = await run([plan('cam3')], { mode: 'retire' })
    expect(domainSteps.map(({ subject }) => subject)).toEqual([
      'domain *.cam3.site.test: still reserved',
    ])
    const again = await run([plan('cam1')], { mode: 'retire' })
    expect(actionsOf(again)).toEqual([''])
    expect([describeProvision(again, false), describeUnknown(again, '/list')]).toEqual([
      '',
      'device-agent: cam1: nothing to retire. No authtoken, no file and no entry of /list has this name.\n',
    ])
  })

  it('deletes no bot user that is not there for the device alone', async () => {
    const { run, plan, issuer, botUsers, call, credentials } = await startSite()
    await issuer.createBotUser({ name: 'alice', active: true })
    await run([plan('cam1')])
    const owner_id = botUsers.findByName('cam1')?.id
    await call('POST', '/credentials', { body: { owner_id, description: 'by hand' } })
    const result = await run([plan('alice'), plan('cam1')], { mode: 'retire' })
    expect(actionsOf(result)).toEqual(['keep', 'revoke keep delete write'])
    expect(result.devices[0]?.steps[0]?.subject).toMatch(/^bot user alice: shared with /)
    expect(['alice', 'cam1'].map((name) => botUsers.findByName(name)?.name)).toEqual([
      'alice',
      'cam1',
    ])
    expect(credentials.page({ limit: 9 })).toHaveLength(1)
  })

  it('only says what it would do in a dry run', async () => {
    const { run, plan, folder, domains, botUsers, credentials } = await startSite()
    const result = await run([plan('cam1')], { dryRun: true })
    expect(describeProvision(result, true)).toBe(
      [
        'would reserve domain *.site.test',
        'would create  bot user cam1',
        'would create  authtoken bind:cam1.site.test bind:*.cam1.site.test',
        `would write   ${join(folder, 'fleet-devices.jsonl')}`,
        'would write   device cam1',
        `would write   ${join(folder, 'cam1.env')}`,
        '',
      ].join('\n'),
    )
    expect(existsSync(join(folder, 'cam1.env'))).toBe(false)
    expect(domains.all()).toEqual([])
    expect([botUsers.page({ limit: 1 }), credentials.page({ limit: 1 })]).toEqual([[], []])
  })
})

describe('provisioning many devices', () => {
  it('reserves a shared domain once and gives each device its own authtoken', async () => {
    const { run, plan, envOf, domains, done } = await startSite()
    const names = Array.from({ length: 20 }, (_, n) => `cam${n}`)
    const result = await run(names.map((name) => plan(name)))
    expect(errorsOf(result)).toEqual(names.map(() => undefined))
    expect(result.devices.map(({ device }) => device.name)).toEqual(names)
    expect(domains.all()).toHaveLength(1)
    expect(new Set(names.map((name) => envOf(name).SVC_AUTHTOKEN)).size).toBe(20)
    expect(done.toSorted()).toEqual(names.toSorted())
  })

  it('goes on after one that fails and says which', async () => {
    const { run, plan, envOf, issuer } = await startSite()
    await issuer.createBotUser({ name: 'cam2', active: false })
    const bad = plan('cam3', { domain: '*.bad_name.test', agentDomain: 'x.bad_name.test' })
    const result = await run([plan('cam1'), plan('cam2'), bad, plan('cam4')])
    expect(result.domainSteps).toEqual([{ action: 'reserve', subject: 'domain *.site.test' }])
    expect(errorsOf(result)).toEqual([
      undefined,
      expect.stringContaining('cam2 is deactivated'),
      expect.stringMatching(/refused the request: .*\(ERR_NGROK_438\)/),
      undefined,
    ])
    expect([envOf('cam1').AGENT_DOMAIN, envOf('cam4').AGENT_DOMAIN]).toEqual([
      'cam1.site.test',
      'cam4.site.test',
    ])
  })

  it('says of many what became of each', async () => {
    const { run, plan } = await startSite()
    const [one, two] = [plan('cam1'), plan('cam2')]
    const words = (result: Awaited<ReturnType<typeof run>>) =>
      describeProvision(result, false).match(/^\w+(?= .*\.env$)/gm)
    expect(words(await run([one, two]))).toEqual(['write', 'write'])
    expect(words(await run([one, two]))).toEqual(['keep', 'keep'])
    expect(words(await run([one, two], { mode: 'retire' }))).toEqual(['delete', 'delete'])
  })

  it('slows down when the API asks for it', async () => {
    const { run, plan, clock, call } = await startSite()
    // As many as a key may make at once.
    for (let n = 0; n < 300; n += 1) await call('GET', '/bot_users?limit=1')
    const devices = Array.from({ length: 3 }, (_, n) => plan(`cam${n}`))
    const running = run(devices)
    await eventually(() => expect(clock.sleeping).toBeGreaterThan(0))
    const over = running.then(() => true)
    while (!(await Promise.race([over, tick()]))) await clock.advance(1_000)
    expect(errorsOf(await running)).toEqual(devices.map(() => undefined))
  })

  it('asks for what many devices need at once, and for each alone where that is not served', async () => {
    const { run, plan, baseUrl, authority, envOf } = await startSite()
    const names = Array.from({ length: 30 }, (_, n) => `cam${n}`)
    const asked: string[] = []
    const real = globalThis.fetch
    const spied = vi.spyOn(globalThis, 'fetch').mockImplementation((url, request) => {
      if (request?.method === 'POST') asked.push(String(url).replace(baseUrl, ''))
      return real(url, request)
    })
    onTestFinished(() => spied.mockRestore())
    await run(
      names.map((name) =>
        plan(name, {
          domain: `*.${name}.test`,
          hasOwnDomain: true,
          agentDomain: `a.${name}.test`,
        }),
      ),
    )
    expect(asked).toEqual(['/batch', '/batch', '/batch', '/batch'])
    for (const name of names) authority.authenticate(envOf(name).SVC_AUTHTOKEN ?? '')

    asked.length = 0
    spied.mockImplementation((url, request) => {
      const isBatch = String(url).endsWith('/batch')
      if (request?.method === 'POST') asked.push(String(url).replace(baseUrl, ''))
      return real(isBatch ? `${baseUrl}/nothing` : url, request)
    })
    expect(errorsOf(await run(['x1', 'x2'].map((name) => plan(name))))).toEqual([
      undefined,
      undefined,
    ])
    expect(asked.filter((path) => path === '/batch')).toHaveLength(1)
    expect(asked.filter((path) => path === '/credentials')).toHaveLength(2)
  })
})

const tick = () => new Promise<false>((resolve) => setTimeout(() => resolve(false), 5))
