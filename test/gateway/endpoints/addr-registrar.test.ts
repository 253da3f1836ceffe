import { describe, expect, it } from 'vitest'
import type { AgentEndpoint } from '../../../src/gateway/endpoints/endpoint.ts'
import { openGatewayStores } from '../../helpers/gateway-stores.ts'
import { serviceCode } from '../../helpers/service-code.ts'

const ADDR = 'gw.site.test:20003'

function open() {
  const stores = openGatewayStores()
  const { id: ownerId } = stores.issuer.createBotUser({ name: 'press' })
  const { id: otherId } = stores.issuer.createBotUser({ name: 'other' })
  const online = (host: string, owner: string | null) => {
    const endpoint = { id: `ep_${host}`, protocol: 'tcp', host, ownerId: owner } as AgentEndpoint
    stores.registry.add(endpoint)
    return endpoint
  }
  return { ...stores, ownerId, otherId, online }
}

describe('AddrRegistrar', () => {
  it('reserves the address that is asked for, or one that is free, and says so', () => {
    const { addrRegistrar, reservedAddrs, changedAddrs, ownerId } = open()
    const asked = addrRegistrar.reserve({ addr: ADDR.toUpperCase(), ownerId, metadata: 'm' })
    expect(asked).toMatchObject({ addr: ADDR, ownerId, metadata: 'm', description: '' })
    expect(asked.id).toMatch(/^ra_/)
    const drawn = Array.from({ length: 7 }, () => addrRegistrar.reserve({}).addr)
    expect(new Set([ADDR, ...drawn]).size).toBe(8)
    expect(serviceCode(() => addrRegistrar.reserve({}))).toBe(15013)
    expect(reservedAddrs.find(ADDR)).toEqual(asked)
    expect(changedAddrs).toEqual([ADDR, ...drawn])
  })

  it.each([
    [{ addr: 'elsewhere.test:20003' }, 400],
    [{ addr: 'gw.site.test:20008' }, 400],
    [{ addr: 'gw.site.test' }, 400],
    [{ ownerId: 'bot_nobody' }, 634],
    [{ description: 'x'.repeat(256) }, 420],
    [{ metadata: 'x'.repeat(4_097) }, 421],
    [{ addr: 'gw.site.test:20000' }, 413],
    [{ addr: 'gw.site.test:20001' }, 446],
  ])('refuses %j with %i', (request, code) => {
    const { addrRegistrar, online, otherId } = open()
    addrRegistrar.reserve({ addr: 'gw.site.test:20000' })
    online('gw.site.test:20001', otherId)
    expect(serviceCode(() => addrRegistrar.reserve(request))).toBe(code)
  })

  it('gives a bot user a quarter of the range at most', () => {
    const { addrRegistrar, ownerId } = open()
    addrRegistrar.reserve({ ownerId })
    addrRegistrar.reserve({ ownerId })
    expect(serviceCode(() => addrRegistrar.reserve({ ownerId }))).toBe(414)
  })

  it('changes texts and owner, and gives up what nobody has', () => {
    const { addrRegistrar, registry, reservedAddrs, online, ownerId, otherId } = open()
    const reserved = addrRegistrar.reserve({ addr: ADDR, ownerId })
    const endpoint = online(ADDR, ownerId)
    expect(addrRegistrar.update(reserved, { description: 'd' })).toMatchObject({ description: 'd' })
    expect(serviceCode(() => addrRegistrar.update(reserved, { ownerId: otherId }))).toBe(446)
    expect(serviceCode(() => addrRegistrar.release(reserved))).toBe(446)
    registry.remove(endpoint)
    expect(addrRegistrar.update(reserved, { ownerId: otherId }).ownerId).toBe(otherId)
    addrRegistrar.release(reserved)
    expect(reservedAddrs.find(ADDR)).toBeUndefined()
  })

  it('keeps an address for its owner, and for whom the gateway gave leave', () => {
    const { addrRegistrar, authority, issuer, ownerId, otherId } = open()
    const other = 'gw.site.test:20004'
    addrRegistrar.reserve({ addr: ADDR, ownerId })
    addrRegistrar.reserve({ addr: other })
    const codeOf = (owner: string, address: string, acl: string[] = []) => {
      const { id } = issuer.createCredential({ ownerId: owner, acl }).credential
      return serviceCode(() => authority.checkBind(id, address, 'tcp'))
    }
    expect([codeOf(ownerId, ADDR), codeOf(otherId, ADDR)]).toEqual([undefined, 319])
    expect(codeOf(otherId, ADDR, [`bind:${ADDR}`])).toBe(319)
    expect([codeOf(otherId, other), codeOf(otherId, other, [`bind:${other}`])]).toEqual([
      319,
      undefined,
    ])
    expect(codeOf(otherId, 'gw.site.test:20005')).toBeUndefined()
  })
})
