import { describe, expect, it } from 'vitest'
import { present } from '../../../src/gateway/records/service-error.ts'
import { eventually } from '../../helpers/eventually.ts'
import { openGatewayStores } from '../../helpers/gateway-stores.ts'

const DENY = JSON.stringify({ on_http_request: [{ actions: [{ type: 'deny' }] }] })
const OTHER = JSON.stringify({
  on_http_request: [{ actions: [{ type: 'custom-response', config: { status_code: 418 } }] }],
})

describe('records', () => {
  it('change within Database.change() only', () => {
    const { botUsers, events, webhookStore, apiKeys } = openGatewayStores()
    const botUser = { id: 'bot_1', name: 'a', active: true, quotas: {}, createdAt: 0 }
    const changes = [
      () => botUsers.insert(botUser),
      () => botUsers.replace(botUser),
      () => botUsers.delete('bot_1'),
      () => webhookStore.deactivate('wh_1'),
      () => webhookStore.noteDelivered('wh_1', 1),
      () => apiKeys.noteUse('ak_1', 1),
      () => events.append({ at: 0, type: 'device.online', ownerId: null, details: {} }),
    ]
    for (const change of changes) expect(change).toThrow('within Database.change() only')
    expect(botUsers.page({ limit: 1 })).toEqual([])
  })

  it('are checked and written at once: of two that want the same, one gets it', async () => {
    const { issuer, registrar, botUsers, domains } = openGatewayStores()
    const names = await Promise.allSettled([
      issuer.createBotUser({ name: 'press' }),
      issuer.createBotUser({ name: 'press' }),
    ])
    expect(names.map(({ status }) => status)).toEqual(['fulfilled', 'rejected'])
    expect(botUsers.page({ limit: 10 })).toHaveLength(1)
    const reserved = await Promise.allSettled([
      registrar.reserve({ domain: '*.site.test' }),
      registrar.reserve({ domain: '*.site.test' }),
    ])
    expect(reserved.map(({ status }) => status)).toEqual(['fulfilled', 'rejected'])
    expect(domains.all()).toHaveLength(1)
  })

  it('keep what somebody else has changed while a change was on its way', async () => {
    const { issuer, credentials } = openGatewayStores()
    const { credential } = await issuer.createCredential({ description: 'old' })
    await issuer.updateCredential(credential, { metadata: 'of the first' })
    await issuer.updateCredential(credential, { description: 'of the second' })
    expect(credentials.get(credential.id)).toMatchObject({
      description: 'of the second',
      metadata: 'of the first',
    })
  })

  it('are not found by a change that comes after their end', async () => {
    const { issuer, registrar } = openGatewayStores()
    const { credential } = await issuer.createCredential({})
    await issuer.deleteCredential(credential)
    const change = issuer.updateCredential(credential, { metadata: 'm' })
    await expect(change).rejects.toMatchObject({ name: 'ResourceNotFoundError' })
    const domain = await registrar.reserve({ domain: '*.site.test' })
    await registrar.release(domain)
    const update = registrar.update(domain, { metadata: 'm' })
    await expect(update).rejects.toMatchObject({ name: 'ResourceNotFoundError' })
    expect(() => present(undefined)).toThrow()
  })
})

describe('what follows records', () => {
  it('does so whoever changes them, as other nodes will', async () => {
    const { database, issuer, changedCredentials, credentials, botUsers } = openGatewayStores()
    const owner = await issuer.createBotUser({ name: 'a' })
    const { credential } = await issuer.createCredential({ ownerId: owner.id })
    const told = () => changedCredentials.splice(0)
    await database.change(() => credentials.replace({ ...credential, acl: ['bind:*'] }))
    expect(told()).toEqual([credential.id])
    await database.change(() => botUsers.replace({ ...owner, active: false }))
    expect(told()).toEqual([credential.id])
    await database.change(() => botUsers.delete(owner.id))
    expect(told()).toEqual([credential.id])
  })

  it('hears nothing of a change that was undone', async () => {
    const { database, issuer, credentials, changedCredentials } = openGatewayStores()
    const { credential } = await issuer.createCredential({})
    const undone = database.change(() => {
      credentials.delete(credential.id)
      throw new Error('stop')
    })
    await expect(undone).rejects.toThrow('stop')
    expect(changedCredentials).toEqual([])
  })

  it('fails alone: what was written stays written', async () => {
    const { database, botUsers, issuer, captured } = openGatewayStores()
    database.onRows(() => {
      throw new Error('cannot follow')
    })
    const { id } = await issuer.createBotUser({ name: 'a' })
    expect(botUsers.get(id)?.name).toBe('a')
    expect(captured.text()).toContain('cannot follow')
  })

  it('brings cloud endpoints online, changes them and takes them offline', async () => {
    const { database, cloudEndpoints, cloudEndpointStore, registry, registrar } =
      openGatewayStores()
    await registrar.reserve({ domain: '*.site.test' })
    const url = 'https://front.site.test'
    const { id } = await cloudEndpoints.create({ url, trafficPolicy: DENY }, { isGranted: true })
    const stored = present(cloudEndpointStore.get(id))
    const policyAt = (host: string) =>
      registry.holdersOf({ protocol: 'https', host }, null)[0]?.trafficPolicy
    await database.change(() => cloudEndpointStore.replace({ ...stored, trafficPolicy: OTHER }))
    await eventually(() => expect(policyAt('front.site.test')).toBe(OTHER))
    const another = { ...stored, id: 'ep_another', host: 'other.site.test' }
    await database.change(() => cloudEndpointStore.insert(another))
    await eventually(() => expect(policyAt('other.site.test')).toBe(DENY))
    await database.change(() => cloudEndpointStore.delete('ep_another'))
    expect(policyAt('other.site.test')).toBeUndefined()
  })
})
