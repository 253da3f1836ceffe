import { describe, expect, it } from 'vitest'
import type { AgentEndpoint } from '../../../../src/gateway/endpoints/endpoint.ts'
import { openGatewayStores } from '../../../helpers/gateway-stores.ts'
import { rejectionCode, serviceCode } from '../../../helpers/service-code.ts'

const ADDR = 'gw.site.test:20003'

async function open() {
  const stores = openGatewayStores()
  const { id: ownerId } = await stores.issuer.createBotUser({ name: 'press' })
  const { id: otherId } = await stores.issuer.createBotUser({ name: 'other' })
  const online = (host: string, owner: string | null) => {
    const endpoint = { id: `ep_${host}`, protocol: 'tcp', host, ownerId: owner } as AgentEndpoint
    stores.registry.add(endpoint)
    return endpoint
  }
  return { ...stores, ownerId, otherId, online }
}

describe('AddrRegistrar', () => {
  it('reserves the address that is asked for, or one that is free, and says so', async () => {
    const { addrRegistrar, reservedAddrs, changedAddrs, ownerId } = await open()
    const asked = await addrRegistrar.reserve({ addr: ADDR.toUpperCase(), ownerId, metadata: 'm' })
    expect(asked).toMatchObject({ addr: ADDR, ownerId, metadata: 'm', description: '' })
    expect(asked.id).toMatch(/^ra_/)
    const drawn: string[] = []
    for (let n = 0; n < 7; n += 1) drawn.push((await addrRegistrar.reserve({})).addr)
    expect(new Set([ADDR, ...drawn]).size).toBe(8)
    expect(await rejectionCode(addrRegistrar.reserve({}))).toBe(15013)
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
  ])('refuses %j with %i', async (request, code) => {
    const { addrRegistrar, online, otherId } = await open()
    await addrRegistrar.reserve({ addr: 'gw.site.test:20000' })
    online('gw.site.test:20001', otherId)
    expect(await rejectionCode(addrRegistrar.reserve(request))).toBe(code)
  })

  it('gives a bot user a quarter of the range at most', async () => {
    const { addrRegistrar, ownerId } = await open()
    await addrRegistrar.reserve({ ownerId })
    await addrRegistrar.reserve({ ownerId })
    expect(await rejectionCode(addrRegistrar.reserve({ ownerId }))).toBe(414)
  })

  it('changes texts and owner, and gives up what nobody has', async () => {
    const { addrRegistrar, registry, reservedAddrs, online, ownerId, otherId } = await open()
    const reserved = await addrRegistrar.reserve({ addr: ADDR, ownerId })
    const endpoint = online(ADDR, ownerId)
    expect(await addrRegistrar.update(reserved, { description: 'd' })).toMatchObject({
      description: 'd',
    })
    expect(await rejectionCode(addrRegistrar.update(reserved, { ownerId: otherId }))).toBe(446)
    expect(await rejectionCode(addrRegistrar.release(reserved))).toBe(446)
    registry.remove(endpoint)
    expect((await addrRegistrar.update(reserved, { ownerId: otherId })).ownerId).toBe(otherId)
    await addrRegistrar.release(reserved)
    expect(reservedAddrs.find(ADDR)).toBeUndefined()
  })

  it('keeps an address for its owner, and for whom the gateway gave leave', async () => {
    const { addrRegistrar, authority, issuer, ownerId, otherId } = await open()
    const other = 'gw.site.test:20004'
    await addrRegistrar.reserve({ addr: ADDR, ownerId })
    await addrRegistrar.reserve({ addr: other })
    const codeOf = async (owner: string, address: string, acl: string[] = []) => {
      const { id } = (await issuer.createCredential({ ownerId: owner, acl })).credential
      return serviceCode(() => authority.checkBind(id, address, 'tcp'))
    }
    expect([await codeOf(ownerId, ADDR), await codeOf(otherId, ADDR)]).toEqual([undefined, 319])
    expect(await codeOf(otherId, ADDR, [`bind:${ADDR}`])).toBe(319)
    expect([await codeOf(otherId, other), await codeOf(otherId, other, [`bind:${other}`])]).toEqual(
      [319, undefined],
    )
    expect(await codeOf(otherId, 'gw.site.test:20005')).toBeUndefined()
  })
})
