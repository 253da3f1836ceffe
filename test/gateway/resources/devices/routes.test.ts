import { describe, expect, it } from 'vitest'
import { present, ResourceNotFoundError } from '../../../../src/gateway/records/service-error.ts'
import type { Caller } from '../../../../src/gateway/resources/common/caller.ts'
import type { Device } from '../../../../src/gateway/resources/devices/device-store.ts'
import { devices as devicesResource } from '../../../../src/gateway/resources/devices/routes.ts'
import { agentWithEndpoint } from '../../../helpers/connected-agent.ts'
import { startManagementApi } from '../../../helpers/management-client.ts'

const MADE_AT = '2030-01-01T00:00:00Z'
const WRITTEN_MS = 200

async function startWithDevices() {
  const api = await startManagementApi()
  const { issuer, devices, clock } = api
  const { credential } = await issuer.createCredential({ description: 'line 7' })
  /** Comes online with one endpoint. */
  const come = async (suffix: string, deviceId: string | undefined = `d${suffix}`) => {
    const { agent, traffic } = agentWithEndpoint(suffix)
    const session = {
      ...agent,
      identity: { ...agent.identity, deviceId, credentialId: credential.id },
    }
    devices.came(session)
    await clock.advance(WRITTEN_MS)
    return { session, traffic }
  }
  const list = async (filter = '') => {
    const query = filter && `?filter=${encodeURIComponent(filter)}`
    const { body } = await api.call('GET', `/devices${query}`)
    return body.devices.map(({ name }: { name: string }) => name)
  }
  return { ...api, credential, come, list }
}

/** What the routes do, all of it within one tick. */
function actionsOf(api: Awaited<ReturnType<typeof startWithDevices>>) {
  const { update, remove } = devicesResource(api)
  if (!update || !remove) throw new Error('devices are changed and removed')
  const caller = { ownerId: null } as Caller
  return {
    update: (device: Device, body: object) => update.run(body, { item: device, caller }),
    remove: (device: Device) => remove(device),
  }
}

describe('devices', () => {
  it('are there before they were ever seen, once they are made', async () => {
    const { call, credential, baseUrl } = await startWithDevices()
    const { status, body } = await call('POST', '/devices', {
      body: { name: 'Press 7', tags: ['line-2', 'hall-a', 'line-2'], credential_id: credential.id },
    })
    expect(status).toBe(201)
    expect(body).toEqual({
      id: expect.stringMatching(/^dv_[0-9A-Za-z]{27}$/),
      uri: `${baseUrl}/devices/${body.id}`,
      created_at: MADE_AT,
      name: 'Press 7',
      tags: ['hall-a', 'line-2'],
      metadata: '',
      provisioned: true,
      owner_id: null,
      credential: { id: credential.id, uri: `${baseUrl}/credentials/${credential.id}` },
      device_id: null,
      state: 'never',
      online: false,
      since: null,
      last_seen_at: null,
      offline_reason: null,
      ip: '',
      hostname: '',
      os: '',
      arch: '',
      agent_version: '',
      latency_ms: null,
      tunnel_sessions: [],
      endpoints: [],
      traffic: { requests: 0, refused: 0, bytes_in: 0, bytes_out: 0 },
      duplicate: null,
    })
    const again = await call('POST', '/devices', { body: { credential_id: credential.id } })
    expect([again.status, again.body.error_code]).toEqual([409, 'ERR_NGROK_831'])
    const unknown = await call('POST', '/devices', { body: { credential_id: 'cr_x' } })
    expect(unknown.body.error_code).toBe('ERR_NGROK_215')
  })

  it('show what is known of them, online and not', async () => {
    const { call, come, devices, clock, credential, baseUrl } = await startWithDevices()
    const made = (await call('POST', '/devices', { body: { credential_id: credential.id } })).body
    const { session, traffic } = await come('7')
    traffic.requests = 3
    traffic.bytesIn = 10
    await clock.advance(60_000)
    const online = (await call('GET', `/devices/${made.id}`)).body
    expect(online).toMatchObject({
      name: 'press-7',
      device_id: 'd7',
      state: 'online',
      online: true,
      since: MADE_AT,
      last_seen_at: '2030-01-01T00:01:00Z',
      offline_reason: null,
      ip: '192.0.2.7',
      os: 'linux',
      arch: 'arm64',
      agent_version: '1.2.3',
      latency_ms: 12,
      tunnel_sessions: [{ id: session.id, uri: `${baseUrl}/tunnel_sessions/${session.id}` }],
      endpoints: ['https://press-7.site.test'],
      traffic: { requests: 3, refused: 0, bytes_in: 10, bytes_out: 0 },
    })
    devices.refusedDuplicate(session, '192.0.2.99')
    devices.went(session, 'silent', ['https://press-7.site.test'])
    await clock.advance(60_000)
    expect((await call('GET', `/devices/${made.id}`)).body).toMatchObject({
      state: 'offline',
      online: false,
      since: '2030-01-01T00:01:00Z',
      last_seen_at: '2030-01-01T00:01:00Z',
      offline_reason: 'silent',
      endpoints: ['https://press-7.site.test'],
      tunnel_sessions: [],
      duplicate: { seen_at: '2030-01-01T00:01:00Z', ip: '192.0.2.99' },
    })
  })

  it('are chosen by tag, state and name, and paged', async () => {
    const { call, come, list, devices, clock, baseUrl } = await startWithDevices()
    const sessions = [await come('1'), await come('2'), await come('3')]
    const { body } = await call('GET', '/devices')
    const [third] = body.devices
    await call('PATCH', `/devices/${third.id}`, { body: { tags: ['hall-a', 'new'] } })
    const [first] = sessions
    if (first) devices.went(first.session, 'kicked', [])
    await clock.advance(WRITTEN_MS)
    expect(await list()).toEqual(['press-3', 'press-2', 'press-1'])
    expect(await list('"hall-a" in obj.tags')).toEqual(['press-3'])
    expect(await list('obj.online')).toEqual(['press-3', 'press-2'])
    expect(await list('obj.offline_reason == "kicked"')).toEqual(['press-1'])
    expect(await list('obj.last_seen_at < time.now && !obj.online')).toEqual(['press-1'])
    expect(await list('obj.name.contains("2") && obj.state == "online"')).toEqual(['press-2'])
    const page = (await call('GET', '/devices?limit=2')).body
    expect(page.devices).toHaveLength(2)
    const next = (await call('GET', page.next_page_uri.replace(baseUrl, ''))).body
    expect(next.devices.map(({ name }: { name: string }) => name)).toEqual(['press-1'])
  })

  it('are named and tagged by people, who may take the name back', async () => {
    const { call, come } = await startWithDevices()
    await come('7')
    const { id } = (await call('GET', '/devices')).body.devices[0]
    const patch = (body: object) => call('PATCH', `/devices/${id}`, { body })
    const named = await patch({ name: '  Press 7 ', tags: ['b', 'a'], metadata: '{"x":1}' })
    expect(named.body).toMatchObject({
      name: 'Press 7',
      tags: ['a', 'b'],
      metadata: '{"x":1}',
      online: true,
    })
    expect((await patch({ name: '' })).body).toMatchObject({ name: 'press-7', tags: ['a', 'b'] })
    for (const bad of [
      { tags: ['two words'] },
      { tags: [''] },
      { tags: Array.from({ length: 33 }, (_, n) => `t${n}`) },
      { name: 'x'.repeat(129) },
    ]) {
      expect((await patch(bad)).body.error_code, JSON.stringify(bad)).toBe('ERR_NGROK_215')
    }
    expect((await patch({ online: true })).body.error_code).toBe('ERR_NGROK_214')
  })

  it('are forgotten when they are not there any more, and not before', async () => {
    const { call, come, devices, clock } = await startWithDevices()
    const { session } = await come('7')
    const { id } = (await call('GET', '/devices')).body.devices[0]
    const refused = await call('DELETE', `/devices/${id}`)
    expect([refused.status, refused.body.error_code]).toEqual([409, 'ERR_NGROK_833'])
    devices.went(session, 'revoked', [])
    expect((await call('DELETE', `/devices/${id}`)).status).toBe(204)
    expect((await call('GET', `/devices/${id}`)).status).toBe(404)
    await clock.advance(WRITTEN_MS)
    expect((await call('GET', '/devices')).body.devices).toEqual([])
  })

  it('of other accounts are not there for the key of an owner', async () => {
    const { call, issuer, devices, clock } = await startManagementApi()
    const { id: a } = await issuer.createBotUser({ name: 'a' })
    const { id: b } = await issuer.createBotUser({ name: 'b' })
    for (const [at, ownerId] of [a, b, null].entries()) {
      const { agent } = agentWithEndpoint(String(at + 1))
      devices.came({ ...agent, identity: { ...agent.identity, ownerId, deviceId: 'd' } })
    }
    await clock.advance(WRITTEN_MS)
    const all = (await call('GET', '/devices')).body.devices
    expect(all).toHaveLength(3)
    const key = (await issuer.createApiKey({ ownerId: a })).token
    const own = (await call('GET', '/devices', { key })).body.devices
    expect(own.map((it: { owner_id: string }) => it.owner_id)).toEqual([a])
    const foreign = all.find((it: { owner_id: string }) => it.owner_id === b)
    expect((await call('GET', `/devices/${foreign.id}`, { key })).status).toBe(404)
    const { credential } = await issuer.createCredential({ ownerId: b })
    const made = await call('POST', '/devices', { key, body: { credential_id: credential.id } })
    expect(made.body.error_code).toBe('ERR_NGROK_215')
  })

  it('are one for each authtoken, also when several are made at once', async () => {
    const { call, credential } = await startWithDevices()
    const body = { credential_id: credential.id }
    const requests = Array.from({ length: 3 }, () => ({ path: 'devices', body }))
    const [batch, ...alone] = await Promise.all([
      call('POST', '/batch', { body: { requests } }),
      call('POST', '/devices', { body }),
      call('POST', '/devices', { body }),
    ])
    const made = [...batch.body.responses, ...alone].map(
      ({ status, body: { error_code } }) => error_code ?? status,
    )
    expect(made.sort()).toEqual([201, ...Array(4).fill('ERR_NGROK_831')])
    expect((await call('GET', '/devices')).body.devices).toHaveLength(1)
  })

  it('do not come back by a change that arrives behind their end', async () => {
    const api = await startWithDevices()
    const { call, credential, deviceStore, update, remove } = { ...api, ...actionsOf(api) }
    const { id } = (await call('POST', '/devices', { body: { credential_id: credential.id } })).body
    const device = present(deviceStore.get(id))
    const [gone, changed] = await Promise.allSettled([
      remove(device),
      update(device, { name: 'Press 7' }),
    ])
    expect([gone.status, changed]).toMatchObject([
      'fulfilled',
      { reason: expect.any(ResourceNotFoundError) },
    ])
    expect(deviceStore.get(id)).toBeUndefined()
  })

  it('stay when they come online while somebody forgets them', async () => {
    const api = await startWithDevices()
    const { come, devices, deviceStore, remove } = { ...api, ...actionsOf(api) }
    const { session } = await come('7')
    devices.went(session, 'revoked', [])
    const [device] = devices.all()
    const forgotten = remove(present(device))
    devices.came(session)
    await expect(forgotten).rejects.toMatchObject({ code: 833 })
    expect(deviceStore.online()).toHaveLength(1)
  })

  it('are changed with a trace', async () => {
    const { call, credential } = await startWithDevices()
    const body = { credential_id: credential.id, name: 'Press 7', tags: ['a'] }
    const { id } = (await call('POST', '/devices', { body })).body
    await call('PATCH', `/devices/${id}`, { body: { tags: ['b'] } })
    await call('DELETE', `/devices/${id}`)
    const { entries } = (await call('GET', '/audit')).body
    const own = entries.filter(({ action }: { action: string }) => action.startsWith('device.'))
    expect(own).toMatchObject([
      { action: 'device.delete', target: { id, name: 'Press 7' } },
      { action: 'device.update', changes: { tags: [['a'], ['b']] } },
      { action: 'device.create', target: { id, name: 'Press 7' } },
    ])
  })
})
