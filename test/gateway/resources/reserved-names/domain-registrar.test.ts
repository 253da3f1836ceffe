import { describe, expect, it } from 'vitest'
import type { Endpoint } from '../../../../src/gateway/endpoints/endpoint.ts'
import { openGatewayStores } from '../../../helpers/gateway-stores.ts'
import { rejectionCode } from '../../../helpers/service-code.ts'
import { temporaryFolder } from '../../../helpers/temporary-folder.ts'

describe('DomainRegistrar', () => {
  it('reserves, changes and gives up a domain', async () => {
    const { registrar, domains, changedDomains } = openGatewayStores()
    const reserved = await registrar.reserve({ domain: '*.Site.test', description: 'site a' })
    expect(reserved).toMatchObject({ domain: '*.site.test', description: 'site a', metadata: '' })
    const changed = await registrar.update(reserved, { metadata: 'm' })
    expect(domains.find('*.site.test')).toEqual({ ...reserved, metadata: 'm' })
    expect(changed.dnsLabel).toBe(reserved.dnsLabel)
    await registrar.release(changed)
    expect(domains.all()).toEqual([])
    expect(changedDomains).toEqual(['*.site.test', '*.site.test'])
  })

  it.each([
    ['a.*.test', 402],
    ['a b.test', 406],
    ['-a.test', 407],
    ['a-.test', 408],
    ['a..test', 409],
    ['ab--c.test', 410],
    ['127.0.0.1', 411],
    ['*.site.internal', 411],
    ['xn--zzzzzzz99999.test', 429],
    ['a_b.test', 438],
    ['test', 448],
    [`${'a'.repeat(64)}.test`, 513],
    [`${'a.'.repeat(130)}test`, 514],
    ['*.TAKEN.test', 413],
  ])('refuses to reserve %s with %i', async (domain, code) => {
    const { registrar, changedDomains } = openGatewayStores()
    await registrar.reserve({ domain: '*.taken.test' })
    expect(await rejectionCode(registrar.reserve({ domain }))).toBe(code)
    expect(changedDomains).toEqual(['*.taken.test'])
  })

  it('says how a name in other letters is written', async () => {
    const { registrar } = openGatewayStores()
    const reserve = (domain: string) => registrar.reserve({ domain })
    await expect(reserve('*.Bücher.test')).rejects.toThrow('write *.xn--bcher-kva.test.')
    await expect(reserve('a b.test')).rejects.toThrow('a-z, 0-9, dots and hyphens')
  })

  it('announces another certificate policy, and nothing else that is changed', async () => {
    const { registrar, domains, changedDomains } = openGatewayStores(undefined, { hasAcme: true })
    const first = await registrar.reserve({ domain: '*.site.test' })
    expect(first).toMatchObject({ authority: 'gateway', privateKeyType: 'ecdsa' })
    await registrar.update(first, { description: 'changed' })
    expect(changedDomains).toEqual(['*.site.test'])
    const managed = await registrar.update(first, { authority: 'letsencrypt' })
    const other = await registrar.update(managed, { privateKeyType: 'rsa' })
    expect(changedDomains).toHaveLength(3)
    expect(domains.get(first.id)).toEqual(other)
    expect(other).toMatchObject({ authority: 'letsencrypt', privateKeyType: 'rsa' })
  })

  it('refuses an ACME authority where none is configured, but keeps one that is set', async () => {
    const folder = temporaryFolder()
    const before = openGatewayStores(folder, { hasAcme: true })
    const domain = await before.registrar.reserve({ domain: 'a.test', authority: 'letsencrypt' })
    before.database.close()
    const { registrar } = openGatewayStores(folder)
    expect(
      await rejectionCode(registrar.reserve({ domain: 'b.test', authority: 'letsencrypt' })),
    ).toBe(215)
    expect((await registrar.update(domain, { description: 'x' })).authority).toBe('letsencrypt')
  })

  it('refuses long texts', async () => {
    const { registrar } = openGatewayStores()
    const reserve = (text: object) => registrar.reserve({ domain: 'a.test', ...text })
    expect(await rejectionCode(reserve({ description: 'x'.repeat(256) }))).toBe(420)
    expect(await rejectionCode(reserve({ metadata: 'x'.repeat(4_097) }))).toBe(421)
  })

  it.each([
    ['*.site.test', 'cam.site.test', 446],
    ['*.site.test', 'x.cam.site.test', 446],
    ['*.site.test', '*.site.test', 446],
    ['cam.site.test', 'cam.site.test', 446],
    ['*.site.test', 'site.test', undefined],
    ['*.site.test', 'cam.other.test', undefined],
  ])('asked to give up %s while %s is online: %s', async (domain, host, code) => {
    const { registrar, registry } = openGatewayStores()
    const reserved = await registrar.reserve({ domain })
    registry.add({ protocol: 'https', host } as Endpoint)
    expect(await rejectionCode(registrar.release(reserved))).toBe(code)
  })
  it('gives up a domain whose names that are online are reserved themselves', async () => {
    const { registrar, registry, domains } = openGatewayStores()
    const wildcard = await registrar.reserve({ domain: '*.site.test' })
    const door = await registrar.reserve({ domain: '*.door.site.test' })
    await registrar.reserve({ domain: 'cam.site.test' })
    for (const host of ['cam.site.test', 'x.door.site.test', '*.door.site.test']) {
      registry.add({ protocol: 'https', host } as Endpoint)
    }
    await registrar.release(wildcard)
    expect(domains.find('*.site.test')).toBeUndefined()
    expect(await rejectionCode(registrar.release(door))).toBe(446)
  })
})
