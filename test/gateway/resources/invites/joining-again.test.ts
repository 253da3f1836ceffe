import { describe, expect, it } from 'vitest'
import { systemClock } from '../../../../src/base/clock.ts'
import { Secret } from '../../../../src/base/secret.ts'
import { type Joined, joinGateway } from '../../../../src/join/join-client.ts'
import { parseJoinString } from '../../../../src/join/join-string.ts'
import { eventually } from '../../../helpers/eventually.ts'
import { managed } from '../../../helpers/managed-gateway.ts'
import { ManualClock } from '../../../helpers/manual-clock.ts'
import {
  bind,
  connectSdk,
  type RunningGateway,
  type RunningOptions,
  sdkCode,
  startGateway,
} from '../../../helpers/running-gateway.ts'

const TERMS = { domain: '*.{name}.site.test', tags: ['hall-b'] }
const DAY_MS = 86_400_000
const REVOKED = 'ERR_NGROK_107'
let claims = 0
const newClaim = () => new Secret(`again-${++claims}`.padEnd(22, 'x'))

async function startSite(options: RunningOptions = {}) {
  const running = await startGateway(options)
  const { call } = await managed(running)
  const invite = async (terms: object = TERMS): Promise<string> => {
    const { status, body } = await call('POST', '/invites', terms)
    if (status !== 201) throw new Error(JSON.stringify(body))
    return body.join_string
  }
  /** Joins, by default with a new invitation. */
  const join = async (
    earlierAuthtoken?: Secret,
    { text, claim = newClaim() }: { text?: string; claim?: Secret } = {},
  ): Promise<Joined> => {
    const joinString = parseJoinString(text ?? (await invite()))
    if ('problem' in joinString) throw new Error(joinString.problem)
    return joinGateway({ joinString, claim, hostname: 'cam', earlierAuthtoken, clock: systemClock })
  }
  const actions = async () => {
    const { body } = await call('GET', '/audit')
    const entries: { action: string; result: string; who: { kind: string } }[] = body.entries
    return entries
      .filter(({ who, action }) => who.kind === 'invite' && action.startsWith('credential'))
      .map(({ who, action, result }) => `${who.kind} ${action} ${result}`)
  }
  const devices = async () => (await call('GET', '/devices')).body.devices
  return { running, call, invite, join, actions, devices }
}

/** Undefined if the gateway lets the authtoken in, else the code of its refusal. */
const use = (running: RunningGateway, { authtoken }: Pick<Joined, 'authtoken'>) =>
  sdkCode(connectSdk(running, { authtoken }))

/** Processes of devices that are connected. */
const instances = ({ gateway }: RunningGateway) =>
  [...gateway.parts.sessions.all()].map(({ identity }) => identity.instance)

describe('a device that joins its gateway again', () => {
  it('keeps its old authtoken until it uses the new one, and is one device all the time', async () => {
    const { running, call, join, actions, devices } = await startSite()
    const old = await join()
    const [before] = await devices()
    const fresh = await join(old.authtoken)
    expect(fresh).toMatchObject({ name: 'cam', tags: ['hall-b'] })
    // Power fails before the device has stored the new one: it still has the old one.
    const session = await connectSdk(running, { authtoken: old.authtoken, metadata: ownId('one') })
    await bind(session, 'agent.cam.site.test')
    const restarted = { authtoken: fresh.authtoken, metadata: ownId('two') }
    const again = await connectSdk(running, restarted)
    expect(instances(running)).toEqual(['two'])
    expect(await use(running, old)).toBe(REVOKED)
    await bind(again, 'agent.cam.site.test')
    const [after] = await devices()
    expect(after).toMatchObject({ name: 'cam', tags: ['hall-b'] })
    expect(after.id).toBe(before.id)
    expect((await call('GET', '/credentials')).body.credentials).toHaveLength(2)
    expect(await actions()).toEqual([
      'invite credential.replace ok',
      'invite credential.renew ok',
      'invite credential.create ok',
    ])
  })

  it('ends the session of a stolen authtoken when the device uses its new one', async () => {
    const { running, join } = await startSite()
    const old = await join()
    const metadata = ownId('thief', 'd2')
    await bind(
      await connectSdk(running, { authtoken: old.authtoken, metadata }),
      'agent.cam.site.test',
    )
    const fresh = await join(old.authtoken)
    const owner = { authtoken: fresh.authtoken, metadata: ownId('owner') }
    await bind(await connectSdk(running, owner), 'agent.cam.site.test')
    expect(instances(running)).toEqual(['owner'])
    expect(await use(running, old)).toBe(REVOKED)
  })

  it('has two authtokens at most, and always the one that it has stored', async () => {
    const { running, join, actions } = await startSite()
    const first = await join()
    // Three answers are lost: the device proves the old authtoken each time.
    const lost = [await join(first.authtoken), await join(first.authtoken)]
    const third = await join(first.authtoken)
    for (const each of lost) expect(await use(running, each)).toBe(REVOKED)
    expect(await use(running, first)).toBeUndefined()
    // Three are stored and never used: the device proves the newest each time.
    const fourth = await join(third.authtoken)
    expect(await use(running, first)).toBe(REVOKED)
    const fifth = await join(fourth.authtoken)
    expect(await use(running, third)).toBe(REVOKED)
    expect(await use(running, fourth)).toBeUndefined()
    expect(await use(running, fifth)).toBeUndefined()
    expect(await use(running, fourth)).toBe(REVOKED)
    expect(fifth.name).toBe('cam')
    const replaced = (await actions()).filter((it) => it === 'invite credential.replace ok')
    expect(replaced).toHaveLength(3)
  })

  it('gets another authtoken if the answer was lost', async () => {
    const { running, call, invite, join, devices } = await startSite()
    const [text, claim] = [await invite(), newClaim()]
    const first = await join(undefined, { text, claim })
    const second = await join(undefined, { text, claim })
    expect(second.name).toBe(first.name)
    // Power failed after the device had stored the second, and before it noted that the join is over.
    const third = await join(second.authtoken, { text, claim })
    expect(await use(running, first)).toBe(REVOKED)
    expect(await use(running, second)).toBeUndefined()
    expect(await use(running, third)).toBeUndefined()
    expect(await use(running, second)).toBe(REVOKED)
    expect((await call('GET', '/invites')).body.invites[0].uses).toBe(1)
    expect(await devices()).toHaveLength(1)
  })

  it('gets the rules of its new invitation when it uses the new authtoken', async () => {
    const { running, call, invite, join } = await startSite()
    const old = await join()
    const fresh = await join(old.authtoken, { text: await invite({ domain: '*.other.test' }) })
    const codeOf = async ({ authtoken }: Joined, host: string) =>
      sdkCode(bind(await connectSdk(running, { authtoken }), host))
    expect(await codeOf(old, 'cam.other.test')).toBe('ERR_NGROK_316')
    expect(await codeOf(old, 'agent.cam.site.test')).toBeUndefined()
    expect(await codeOf(fresh, 'cam.other.test')).toBeUndefined()
    const { body } = await call('GET', '/credentials')
    expect(body.credentials[0].acl).toEqual(['bind:cam.other.test', 'bind:*.cam.other.test'])
  })

  it('counts once in the quota of authtokens', async () => {
    const { running, call, invite, join } = await startSite()
    const { body: user } = await call('POST', '/bot_users', { name: 'a' })
    await call('PATCH', `/bot_users/${user.id}`, { quotas: { credentials: 1 } })
    await call('POST', '/reserved_domains', { domain: '*.a.test', owner_id: user.id })
    const terms = { owner_id: user.id, domain: '*.a.test' }
    const old = await join(undefined, { text: await invite(terms) })
    const fresh = await join(old.authtoken, { text: await invite(terms) })
    expect(await use(running, fresh)).toBeUndefined()
  })

  it('loses both authtokens when its authtoken is deleted', async () => {
    const { running, call, join } = await startSite()
    const old = await join()
    const fresh = await join(old.authtoken)
    const { body } = await call('GET', '/credentials')
    await call('DELETE', `/credentials/${body.credentials[0].id}`)
    expect([await use(running, old), await use(running, fresh)]).toEqual([REVOKED, REVOKED])
  })

  it('keeps a new authtoken that it has stored while others use the old one, for months', async () => {
    const clock = new ManualClock(Date.now())
    const { running, join } = await startSite({ clock })
    const old = await join()
    const fresh = await join(old.authtoken)
    clock.stepWall(400 * DAY_MS)
    // The old authtoken was stolen, and the device was off.
    expect(await use(running, old)).toBeUndefined()
    expect(await use(running, fresh)).toBeUndefined()
    expect(await use(running, old)).toBe(REVOKED)
  })

  it('does not get back a rule that was withdrawn before it uses its new authtoken', async () => {
    const { running, call, join } = await startSite()
    const old = await join()
    const [{ id }] = (await call('GET', '/credentials')).body.credentials
    const fresh = await join(old.authtoken)
    const acl = ['bind:agent.cam.site.test']
    await call('PATCH', `/credentials/${id}`, { acl, description: 'gate' })
    const session = await connectSdk(running, fresh)
    expect(await sdkCode(bind(session, 'x.cam.site.test'))).toBe('ERR_NGROK_316')
    expect(await sdkCode(bind(session, 'agent.cam.site.test'))).toBeUndefined()
    expect((await call('GET', `/credentials/${id}`)).body).toMatchObject({
      acl,
      description: 'gate',
    })
  })

  it('does not get back a withdrawn rule when it repeats a join', async () => {
    const { running, call, invite, join } = await startSite()
    const [text, claim] = [await invite(), newClaim()]
    await join(undefined, { text, claim })
    const [{ id }] = (await call('GET', '/credentials')).body.credentials
    const acl = ['bind:agent.cam.site.test']
    await call('PATCH', `/credentials/${id}`, { acl })
    const again = await join(undefined, { text, claim })
    expect(await use(running, again)).toBeUndefined()
    expect((await call('GET', `/credentials/${id}`)).body.acl).toEqual(acl)
  })

  it('gets the rules of its new invitation when it repeats a join with that', async () => {
    const { running, call, invite, join } = await startSite()
    const old = await join()
    const [text, claim] = [await invite({ domain: '*.other.test' }), newClaim()]
    await join(old.authtoken, { text, claim })
    const again = await join(old.authtoken, { text, claim })
    expect(await use(running, again)).toBeUndefined()
    const [{ acl }] = (await call('GET', '/credentials')).body.credentials
    const fresh = ['bind:cam.other.test', 'bind:*.cam.other.test']
    expect(acl).toEqual(fresh)
    const { entries } = (await call('GET', '/audit')).body
    const replaced = entries.find((it: { action: string }) => it.action === 'credential.replace')
    const before = ['bind:*.cam.site.test']
    expect(replaced.changes).toEqual({ authtoken: 'changed', acl: [before, fresh] })
  })
})

describe('a device whose authtoken was deleted', () => {
  const NAMED = { ...TERMS, name: 'cam' }
  const credentialsOf = async (
    { call }: Pick<Awaited<ReturnType<typeof startSite>>, 'call'>,
    { owner_id }: { owner_id: string },
  ) => {
    const { body } = await call('GET', '/credentials')
    return body.credentials.filter((it: { owner_id: string }) => it.owner_id === owner_id)
  }
  /** A gateway with the device `cam`, whose authtoken was deleted. */
  async function startRevoked() {
    const site = await startSite()
    const old = await site.join()
    const first = await connectSdk(site.running, { authtoken: old.authtoken, metadata: ownId('a') })
    await bind(first, 'agent.cam.site.test')
    const [row] = await site.devices()
    const [{ id }] = await credentialsOf(site, row)
    await site.call('DELETE', `/credentials/${id}`)
    const { deviceStore } = site.running.gateway.parts
    await eventually(() => expect(deviceStore.get(row.id)?.goneReason).toBe('revoked'))
    return { ...site, old, row }
  }

  it('gets its name, its rules and its row back with an invitation for this name', async () => {
    const { running, call, invite, join, devices, old, row } = await startRevoked()
    const again = await join(old.authtoken, { text: await invite(NAMED) })
    expect(again).toMatchObject({ name: 'cam', agentUrl: old.agentUrl })
    const session = await connectSdk(running, {
      authtoken: again.authtoken,
      metadata: ownId('b'),
    })
    await bind(session, 'web.cam.site.test')
    expect(await use(running, old)).toBe(REVOKED)
    await eventually(async () => {
      expect(await devices()).toMatchObject([{ id: row.id, name: 'cam', online: true }])
    })
    expect(await credentialsOf({ call }, row)).toHaveLength(1)
  })

  it('gives its name and its row to another machine', async () => {
    const { running, invite, join, devices, row } = await startRevoked()
    const { authtoken } = await join(undefined, { text: await invite(NAMED) })
    await connectSdk(running, { authtoken, metadata: ownId('b', 'd2') })
    await eventually(async () => {
      expect(await devices()).toMatchObject([{ id: row.id, device_id: 'd2', online: true }])
    })
  })

  it('is not found by a host name, not even below a template', async () => {
    const { invite, join, old } = await startRevoked()
    for (const terms of [TERMS, { ...TERMS, name: '{name}' }]) {
      expect((await join(old.authtoken, { text: await invite(terms) })).name).toMatch(/^cam-\d$/)
    }
  })

  it('gets its name once when two use an invitation each at the same moment', async () => {
    const { call, invite, join, row } = await startRevoked()
    const texts = [await invite(NAMED), await invite(NAMED)]
    const outcomes = await Promise.allSettled(texts.map((text) => join(undefined, { text })))
    expect(outcomes.map(({ status }) => status).sort()).toEqual(['fulfilled', 'rejected'])
    expect(await credentialsOf({ call }, row)).toHaveLength(1)
  })

  it('keeps its name while it has an authtoken. The invitation says which', async () => {
    const { call, invite, join } = await startSite()
    await join()
    const { body: made } = await call('POST', '/invites', NAMED)
    const refusal = await join(undefined, { text: made.join_string }).catch(String)
    expect(refusal).toContain('device-agent gateway invite --name cam --replace. Then join with')
    expect((await call('GET', `/invites/${made.id}`)).body.name_taken_by).toBe(null)
    const { device_id, credential_ids } = made.name_taken_by
    expect([device_id, credential_ids.length]).toEqual([expect.stringMatching(/^dv_/), 1])
    expect((await call('DELETE', `/credentials/${credential_ids[0]}`)).status).toBe(204)
    expect((await join(undefined, { text: await invite(NAMED) })).name).toBe('cam')
  })

  it('stays disabled with its bot user', async () => {
    const { call, invite, join, row } = await startRevoked()
    await call('PATCH', `/bot_users/${row.owner_id}`, { active: false })
    const refusal = await join(undefined, { text: await invite(NAMED) }).catch(String)
    expect(refusal).toContain('is inactive. The invitation was not used.')
  })

  it('is not found by an author that is limited to its own resources', async () => {
    const { call, join, running } = await startRevoked()
    const { body: key } = await call('POST', '/api_keys', { owner_only: true })
    const limited = new Secret(key.token)
    const made = await managed(running).then((it) =>
      it.call('POST', '/invites', NAMED, limited.reveal()),
    )
    expect(made.body.name_taken_by).toBe(null)
    const refusal = await join(undefined, { text: made.body.join_string }).catch(String)
    expect(refusal).toMatch(/A device named cam exists .* DELETE \/bot_users\/bot_/)
  })

  it('is no bot user without a device', async () => {
    const { call, invite, join } = await startSite()
    const { body: account } = await call('POST', '/bot_users', { name: 'cam' })
    const refusal = await join(undefined, { text: await invite(NAMED) }).catch(String)
    expect(refusal).toContain(`A bot user named cam exists at this gateway. The owner`)
    expect(refusal).toContain(`DELETE /bot_users/${account.id} at`)
  })

  it('gets its name back in an account, and no other device of the account', async () => {
    const { call, invite, join, devices } = await startSite()
    const { body: account } = await call('POST', '/bot_users', { name: 'a' })
    await call('POST', '/reserved_domains', { domain: '*.a.test', owner_id: account.id })
    const terms = { owner_id: account.id, domain: '*.a.test', name: 'cam' }
    await join(undefined, { text: await invite(terms) })
    await join(undefined, { text: await invite({ ...terms, name: 'cam-9' }) })
    const text = await invite(terms)
    const refusal = await join(undefined, { text }).catch(String)
    const [, path = ''] = /to this device: DELETE (\S+) at/.exec(String(refusal)) ?? []
    const before = await devices()
    expect((await call('GET', path)).body.description).toBe('device cam')
    await call('DELETE', path)
    expect((await join(undefined, { text })).name).toBe('cam')
    const ids = async () => (await devices()).map((it: { id: string }) => it.id)
    expect(await ids()).toEqual(before.map((it: { id: string }) => it.id))
  })
})

const ownId = (instance: string, device_id = 'd1') => JSON.stringify({ device_id, instance })
