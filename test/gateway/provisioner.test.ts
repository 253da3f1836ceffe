import { describe, expect, it } from 'vitest'
import { formatListenAddress } from '../../src/base/listen-address.ts'
import { Secret } from '../../src/base/secret.ts'
import { TcpAddresses } from '../../src/gateway/endpoints/tcp-addresses.ts'
import { Provisioner } from '../../src/gateway/provisioner.ts'
import { openGatewayStores } from '../helpers/gateway-stores.ts'
import { serviceCode } from '../helpers/service-code.ts'

const request = { domain: '*.site.test', name: 'device 7' }

describe('Provisioner', () => {
  it('makes what is missing, and nothing the second time', async () => {
    const stores = openGatewayStores()
    const provisioner = new Provisioner(stores)
    const { authtoken } = await provisioner.provision(request)
    expect((await provisioner.provision({ ...request, authtoken })).authtoken).toBe(authtoken)
    const [credential, ...others] = stores.credentials.page({ limit: 10 })
    expect(others).toEqual([])
    expect(credential?.acl).toEqual(['bind:*.site.test'])
    expect(stores.botUsers.page({ limit: 10 })).toMatchObject([{ name: 'device 7' }])
    expect(stores.domains.all()).toMatchObject([{ domain: '*.site.test' }])
  })

  it.each(['gw.site.test', '::1', '10.0.0.5'])(
    'gives leave for the TCP ports of %s',
    async (host) => {
      const stores = openGatewayStores()
      const { registry, clock } = stores
      const range = { host, first: 20_000, last: 20_009 }
      const tcpAddresses = new TcpAddresses({ range, registry, clock, isReserved: () => false })
      await new Provisioner({ ...stores, tcpAddresses }).provision({
        ...request,
        domain: '*.other.test',
      })
      const [credential] = stores.credentials.page({ limit: 1 })
      const id = credential?.id ?? ''
      const address = formatListenAddress({ host, port: 20_003 })
      expect(serviceCode(() => stores.authority.checkBind(id, address, 'tcp'))).toBeUndefined()
      expect(serviceCode(() => stores.authority.checkBind(id, host, 'https'))).toBe(316)
    },
  )

  it('replaces a token that was lost, so that nobody else can use it', async () => {
    const stores = openGatewayStores()
    const provisioner = new Provisioner(stores)
    const lost = (await provisioner.provision(request)).authtoken
    const fresh = (await provisioner.provision({ ...request, authtoken: new Secret('gone') }))
      .authtoken
    const codeOf = (token: Secret) =>
      serviceCode(() => stores.authority.authenticate(token.reveal()))
    expect(codeOf(lost)).toBe(107)
    expect(codeOf(fresh)).toBeUndefined()
  })

  it('leaves a token alone whose rules were narrowed or whose owner was switched off', async () => {
    const stores = openGatewayStores()
    const provisioner = new Provisioner(stores)
    const { authtoken } = await provisioner.provision(request)
    const [issued] = stores.credentials.page({ limit: 10 })
    const [owner] = stores.botUsers.page({ limit: 10 })
    if (!issued || !owner) throw new Error('nothing was made')
    const narrowed = await stores.issuer.updateCredential(issued, { acl: ['bind:cam.site.test'] })
    await stores.issuer.updateBotUser(owner, { active: false })
    expect((await provisioner.provision({ ...request, authtoken })).authtoken).toBe(authtoken)
    expect(stores.credentials.page({ limit: 10 })).toEqual([narrowed])
    expect(stores.botUsers.get(owner.id)?.active).toBe(false)
  })

  it('replaces a token that was lost while its owner is switched off, and leaves it so', async () => {
    const stores = openGatewayStores()
    const provisioner = new Provisioner(stores)
    await provisioner.provision(request)
    const [owner] = stores.botUsers.page({ limit: 10 })
    if (owner) await stores.issuer.updateBotUser(owner, { active: false })
    const { authtoken } = await provisioner.provision(request)
    expect(serviceCode(() => stores.authority.authenticate(authtoken.reveal()))).toBe(636)
    expect(stores.credentials.page({ limit: 10 })).toHaveLength(1)
  })

  it('gives a token of its own for another domain', async () => {
    const stores = openGatewayStores()
    const provisioner = new Provisioner(stores)
    const { authtoken } = await provisioner.provision(request)
    const other = await provisioner.provision({ ...request, domain: '*.siteb.test', authtoken })
    expect(other.authtoken).not.toBe(authtoken)
    expect(stores.credentials.page({ limit: 10 })).toHaveLength(2)
  })
})

describe('Provisioner.provisionApiKey', () => {
  it('makes one key, hands it back, and replaces it when it was lost', async () => {
    const stores = openGatewayStores()
    const provisioner = new Provisioner(stores)
    const description = 'this machine'
    const lost = await provisioner.provisionApiKey({ description })
    expect(await provisioner.provisionApiKey({ description, apiKey: lost })).toBe(lost)
    const fresh = await provisioner.provisionApiKey({ description, apiKey: new Secret('gone') })
    const codeOf = (key: Secret) =>
      serviceCode(() => stores.authority.authenticateApiKey(key.reveal()))
    expect(codeOf(lost)).toBe(203)
    expect(codeOf(fresh)).toBeUndefined()
    expect(stores.apiKeys.page({ limit: 10 })).toHaveLength(1)
  })

  it('replaces a key that has ended', async () => {
    const stores = openGatewayStores()
    const provisioner = new Provisioner(stores)
    const description = 'this machine'
    const ended = await provisioner.provisionApiKey({ description })
    const [made] = stores.apiKeys.page({ limit: 1 })
    if (!made) throw new Error('nothing was made')
    await stores.issuer.updateApiKey(made, { expiresAt: stores.clock.now() + 1 })
    expect(await provisioner.provisionApiKey({ description, apiKey: ended })).toBe(ended)
    await stores.clock.advance(1)
    const fresh = await provisioner.provisionApiKey({ description, apiKey: ended })
    expect(stores.authority.authenticateApiKey(fresh.reveal()).expiresAt).toBeNull()
  })
})

it('leaves in the audit trail what it has made, and nothing the second time', async () => {
  const stores = openGatewayStores()
  const provisioner = new Provisioner(stores)
  const told = () => {
    const entries = stores.trail.page({ limit: 10 })
    for (const { actor } of entries) expect(actor.kind).toBe('command-line')
    return entries.map(({ action, targetName }) => `${action} ${targetName}`)
  }
  const { authtoken } = await provisioner.provision(request)
  const apiKey = await provisioner.provisionApiKey({ description: 'the owner' })
  const made = [
    'api_key.create the owner',
    'credential.create *.site.test',
    'bot_user.create device 7',
    'reserved_domain.create *.site.test',
  ]
  expect(told()).toEqual(made)
  await provisioner.provision({ ...request, authtoken })
  await provisioner.provisionApiKey({ description: 'the owner', apiKey })
  expect(told()).toEqual(made)
  await provisioner.provisionApiKey({ description: 'the owner' })
  expect(told().slice(0, 2)).toEqual(['api_key.create the owner', 'api_key.delete the owner'])
})
