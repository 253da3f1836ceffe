import { describe, expect, it } from 'vitest'
import { createResourceToken } from '../../../src/gateway/records/resource-id.ts'
import { openGatewayStores } from '../../helpers/gateway-stores.ts'
import { processorMs } from '../../helpers/processor-time.ts'
import { rejectionCode, serviceCode } from '../../helpers/service-code.ts'

describe('Authority.authenticate', () => {
  it('knows the credential of a token', async () => {
    const { authority, issuer } = openGatewayStores()
    const { credential, authtoken } = await issuer.createCredential({ description: 'cam' })
    expect(authority.authenticate(authtoken.reveal())).toEqual(credential)
  })

  it('refuses what is no valid token, without repeating it', async () => {
    const { authority, issuer } = openGatewayStores()
    const { credential, authtoken } = await issuer.createCredential({})
    const otherSecret = createResourceToken(credential.id).reveal()
    const otherId = `${'0'.repeat(27)}${authtoken.reveal().slice(27)}`
    const cases: [token: string, code: number][] = [
      ['', 4018],
      ['secret', 105],
      [`${authtoken.reveal()}x`, 105],
      [otherSecret, 107],
      [otherId, 107],
    ]
    for (const [token, code] of cases) {
      expect(serviceCode(() => authority.authenticate(token))).toBe(code)
      if (token) expect(() => authority.authenticate(token)).not.toThrow(token)
    }
  })

  it('refuses a token that was deleted', async () => {
    const { authority, issuer } = openGatewayStores()
    const { credential, authtoken } = await issuer.createCredential({})
    await issuer.deleteCredential(credential)
    expect(serviceCode(() => authority.authenticate(authtoken.reveal()))).toBe(107)
    expect(serviceCode(() => authority.checkBind(credential.id, 'a.site.test'))).toBe(300)
  })

  it('refuses the tokens of an inactive bot user until it is active again', async () => {
    const { authority, issuer, registrar } = openGatewayStores()
    await registrar.reserve({ domain: '*.site.test' })
    const botUser = await issuer.createBotUser({ name: 'site a' })
    const { credential, authtoken } = await issuer.createCredential({ ownerId: botUser.id })
    const inactive = await issuer.updateBotUser(botUser, { active: false })
    expect(serviceCode(() => authority.authenticate(authtoken.reveal()))).toBe(636)
    expect(serviceCode(() => authority.checkBind(credential.id, 'a.site.test'))).toBe(636)
    await issuer.updateBotUser(inactive, { active: true })
    expect(authority.authenticate(authtoken.reveal()).id).toBe(credential.id)
  })

  it('takes the same time for a token with a known id as for one without', async () => {
    const { authority, issuer } = openGatewayStores()
    const { credential } = await issuer.createCredential({})
    const known = createResourceToken(credential.id).reveal()
    const unknown = `${'0'.repeat(27)}${known.slice(27)}`
    const shortest = (token: string) =>
      processorMs(() => {
        for (let n = 0; n < 100; n += 1) serviceCode(() => authority.authenticate(token))
      }, 20)
    shortest(known)
    const ratio = shortest(known) / shortest(unknown)
    expect(ratio).toBeGreaterThan(1 / 3)
    expect(ratio).toBeLessThan(3)
  })
})

describe('Authority.checkBind', () => {
  it.each([
    ['cam.sitea.test', undefined],
    ['x.cam.sitea.test', undefined],
    ['*.sitea.test', undefined],
    ['*.cam.sitea.test', 321],
    ['sitea.test', 319],
    ['one.siteb.test', undefined],
    ['two.siteb.test', 319],
    ['*.siteb.test', 318],
    ['cam.elsewhere.test', 319],
    ['*.elsewhere.test', 318],
  ])('answers for %s: %s', async (host, code) => {
    const { authority, issuer, registrar } = openGatewayStores()
    await registrar.reserve({ domain: '*.SiteA.test' })
    await registrar.reserve({ domain: 'one.siteb.test' })
    const { credential } = await issuer.createCredential({})
    expect(serviceCode(() => authority.checkBind(credential.id, host))).toBe(code)
  })

  it('asks the rules first, and reads them fresh', async () => {
    const { authority, issuer, registrar } = openGatewayStores()
    await registrar.reserve({ domain: '*.sitea.test' })
    const { credential } = await issuer.createCredential({ acl: ['bind:*.sitea.test'] })
    const ask = (host: string) => serviceCode(() => authority.checkBind(credential.id, host))
    expect(ask('cam.sitea.test')).toBeUndefined()
    expect(ask('cam.siteb.test')).toBe(316)
    await issuer.updateCredential(credential, { acl: ['bind:door.sitea.test'] })
    expect(ask('cam.sitea.test')).toBe(316)
    expect(ask('door.sitea.test')).toBeUndefined()
  })
})

describe('what belongs to an account', () => {
  async function openAccounts() {
    const stores = openGatewayStores()
    const { issuer, registrar } = stores
    const { id: a } = await issuer.createBotUser({ name: 'a' })
    const { id: b } = await issuer.createBotUser({ name: 'b' })
    await registrar.reserve({ domain: '*.free.test' })
    await registrar.reserve({ domain: '*.a.test', ownerId: a })
    await registrar.reserve({ domain: '*.b.test', ownerId: b })
    await registrar.reserve({ domain: '*.inner.a.test', ownerId: b })
    return { ...stores, owners: { a, b, nobody: null } }
  }

  it.each([
    // Without rules: what the owner has, and nothing else.
    ['a', [], 'x.a.test', undefined],
    ['a', [], '*.a.test', undefined],
    ['a', [], 'x.b.test', 319],
    ['a', [], '*.b.test', 318],
    ['a', [], 'x.inner.a.test', 319],
    ['a', [], 'x.free.test', 319],
    ['a', [], '*.free.test', 318],
    ['a', [], 'x.unreserved.test', 319],
    ['a', [], 'cam.internal', undefined],
    ['nobody', [], 'x.free.test', undefined],
    ['nobody', [], 'x.a.test', 319],
    ['nobody', [], 'cam.internal', undefined],
    // A rule gives leave for the gateway's own domains, and never for those of another account.
    ['a', ['bind:*.free.test'], 'x.free.test', undefined],
    ['a', ['*'], 'x.free.test', undefined],
    ['a', ['*'], 'x.a.test', undefined],
    ['a', ['*'], 'x.b.test', 319],
    ['a', ['bind:*.b.test'], 'x.b.test', 319],
    ['a', ['bind:*.free.test'], 'x.a.test', 316],
    ['a', ['bind:*.free.test'], 'cam.internal', 316],
    ['nobody', ['*'], 'x.b.test', 319],
  ] as const)('lets one of %s with the rules %j bind %s: %s', async (owner, acl, host, code) => {
    const { authority, issuer, owners } = await openAccounts()
    const { credential } = await issuer.createCredential({ ownerId: owners[owner], acl })
    expect(serviceCode(() => authority.checkBind(credential.id, host))).toBe(code)
  })

  it('says of the domain of another what it says of one that nobody has', async () => {
    const { authority, issuer, owners } = await openAccounts()
    const { credential } = await issuer.createCredential({ ownerId: owners.a })
    const told = (host: string) => {
      try {
        authority.checkBind(credential.id, host)
        return undefined
      } catch (error) {
        return (error as Error).message.replace(host, 'it')
      }
    }
    expect(told('x.b.test')).toBe(told('x.unreserved.test'))
    expect(told('*.b.test')).toBe(told('*.unreserved.test'))
  })

  it.each([
    ['a', [], '*.a.test'],
    ['b', [], '*.b.test'],
    ['nobody', [], '*.free.test'],
    ['a', ['*'], '*.free.test'],
    ['a', ['bind:*.b.test', 'bind:*.x.a.test'], '*.x.a.test'],
  ] as const)(
    'draws a name for one of %s with the rules %j from %s',
    async (owner, acl, wildcard) => {
      const { authority, issuer, owners } = await openAccounts()
      const { credential } = await issuer.createCredential({ ownerId: owners[owner], acl })
      expect(authority.wildcardFor(credential.id)).toBe(wildcard)
    },
  )

  it('draws nothing for an account without a domain', async () => {
    const { authority, issuer } = await openAccounts()
    const { id: ownerId } = await issuer.createBotUser({ name: 'c' })
    const { credential } = await issuer.createCredential({ ownerId })
    expect(serviceCode(() => authority.wildcardFor(credential.id))).toBe(15013)
  })

  it('is given with all its ports, or with one of them', async () => {
    const { authority, issuer, owners } = await openAccounts()
    const acl = ['bind:ssh.internal', 'share:vnc.internal', 'bind:plc.internal:502']
    const { credential } = await issuer.createCredential({ ownerId: owners.a, acl })
    const codeOf = (address: string) =>
      serviceCode(() => authority.checkBind(credential.id, address, 'tcp'))
    expect(['ssh.internal:22', 'vnc.internal:5900', 'plc.internal:502'].map(codeOf)).toEqual([
      undefined,
      undefined,
      undefined,
    ])
    expect(['plc.internal:503', 'cam.internal:502'].map(codeOf)).toEqual([316, 316])
    const isShared = (address: string) =>
      authority.checkBind(credential.id, address, 'tcp').isShared
    expect(['ssh.internal:22', 'vnc.internal:5900'].map(isShared)).toEqual([false, true])
  })

  it('is told with the leave to bind, and whether it is shared', async () => {
    const { authority, issuer, owners } = await openAccounts()
    const acl = ['bind:*.internal', 'share:cam.internal']
    const { credential } = await issuer.createCredential({ ownerId: owners.a, acl })
    expect(authority.checkBind(credential.id, 'cam.internal')).toEqual({
      ownerId: owners.a,
      isShared: true,
    })
    expect(authority.checkBind(credential.id, 'door.internal')).toEqual({
      ownerId: owners.a,
      isShared: false,
    })
  })

  it('changes hands only while nobody is online there who would lose it', async () => {
    const { registrar, cloudEndpoints, domains, owners } = await openAccounts()
    const trafficPolicy = JSON.stringify({ on_http_request: [{ actions: [{ type: 'deny' }] }] })
    const url = 'https://x.free.test'
    const domain = () => {
      const found = domains.find('*.free.test')
      if (!found) throw new Error('it is gone')
      return found
    }
    const front = await cloudEndpoints.create({ url, trafficPolicy }, { isGranted: true })
    const give = (ownerId: string | null) => registrar.update(domain(), { ownerId })
    expect(await rejectionCode(give(owners.a))).toBe(446)
    await cloudEndpoints.delete(front)
    expect(await rejectionCode(give('bot_unknown'))).toBe(634)
    expect(await rejectionCode(give(owners.a))).toBeUndefined()
    expect(domain().ownerId).toBe(owners.a)
  })

  it('goes with its owner, but for domains: those are the gateway’s then', async () => {
    const { issuer, botUsers, registry, cloudEndpoints, cloudEndpointStore, domains, owners } =
      await openAccounts()
    const trafficPolicy = JSON.stringify({ on_http_request: [{ actions: [{ type: 'deny' }] }] })
    await cloudEndpoints.create({ url: 'https://x.a.test', trafficPolicy }, { isGranted: true })
    const kept = await cloudEndpoints.create(
      { url: 'https://x.b.test', trafficPolicy },
      { isGranted: true },
    )
    const a = botUsers.get(owners.a)
    if (a) await issuer.deleteBotUser(a)
    expect([...registry.all()]).toEqual([kept])
    expect(cloudEndpointStore.all().map(({ id }) => id)).toEqual([kept.id])
    expect(domains.find('*.a.test')?.ownerId).toBeNull()
    expect(domains.find('*.b.test')?.ownerId).toBe(owners.b)
  })
})

describe('Authority.wildcardFor', () => {
  it.each([
    [[], '*.sitea.test'],
    [['*'], '*.sitea.test'],
    [['bind:*.siteb.test'], '*.siteb.test'],
    [['bind:door.sitea.test', 'bind:*.floor.siteb.test'], '*.floor.siteb.test'],
    [['bind:*.unreserved.test', 'bind:*.siteb.test'], '*.siteb.test'],
    [['bind:door.sitea.test'], '*.sitea.test'],
  ])('draws for the rules %j from %s', async (acl, wildcard) => {
    const { authority, issuer, registrar } = openGatewayStores()
    for (const domain of ['one.test', '*.sitea.test', '*.siteb.test'])
      await registrar.reserve({ domain })
    const { credential } = await issuer.createCredential({ acl })
    expect(authority.wildcardFor(credential.id)).toBe(wildcard)
  })

  it.each([[['bind:one.test']], [['bind:*.unreserved.test']]])(
    'has nothing for the rules %j',
    async (acl) => {
      const { authority, issuer, registrar } = openGatewayStores()
      await registrar.reserve({ domain: '*.sitea.test' })
      const { credential } = await issuer.createCredential({ acl })
      expect(serviceCode(() => authority.wildcardFor(credential.id))).toBe(15013)
    },
  )
})
