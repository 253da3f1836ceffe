import { describe, expect, it } from 'vitest'
import type { Endpoint } from '../../../src/gateway/endpoints/endpoint.ts'
import { openGatewayStores } from '../../helpers/gateway-stores.ts'
import { serviceCode } from '../../helpers/service-code.ts'
import { temporaryFolder } from '../../helpers/temporary-folder.ts'

describe('DomainRegistrar', () => {
  it('reserves, changes and gives up a domain', () => {
    const { registrar, domains, changedDomains } = openGatewayStores()
    const reserved = registrar.reserve({ domain: '*.Site.test', description: 'site a' })
    expect(reserved).toMatchObject({ domain: '*.site.test', description: 'site a', metadata: '' })
    const changed = registrar.update(reserved, { metadata: 'm' })
    expect(domains.find('*.site.test')).toEqual({ ...reserved, metadata: 'm' })
    expect(changed.dnsLabel).toBe(reserved.dnsLabel)
    registrar.release(changed)
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
  ])('refuses to reserve %s with %i', (domain, code) => {
    const { registrar, changedDomains } = openGatewayStores()
    registrar.reserve({ domain: '*.taken.test' })
    expect(serviceCode(() => registrar.reserve({ domain }))).toBe(code)
    expect(changedDomains).toEqual(['*.taken.test'])
  })

  it('says how a name in other letters is written', () => {
    const { registrar } = openGatewayStores()
    const reserve = (domain: string) => () => registrar.reserve({ domain })
    expect(reserve('*.Bücher.test')).toThrow('write *.xn--bcher-kva.test.')
    expect(reserve('a b.test')).toThrow('a-z, 0-9, dots and hyphens.')
  })

  it('announces another certificate policy, and nothing else that is changed', () => {
    const { registrar, domains, changedDomains } = openGatewayStores(undefined, { hasAcme: true })
    const first = registrar.reserve({ domain: '*.site.test' })
    expect(first).toMatchObject({ authority: 'gateway', privateKeyType: 'ecdsa' })
    registrar.update(first, { description: 'changed' })
    expect(changedDomains).toEqual(['*.site.test'])
    const managed = registrar.update(first, { authority: 'letsencrypt' })
    const other = registrar.update(managed, { privateKeyType: 'rsa' })
    expect(changedDomains).toHaveLength(3)
    expect(domains.get(first.id)).toEqual(other)
    expect(other).toMatchObject({ authority: 'letsencrypt', privateKeyType: 'rsa' })
  })

  it('refuses an ACME authority where none is configured, but keeps one that is set', () => {
    const folder = temporaryFolder()
    const before = openGatewayStores(folder, { hasAcme: true })
    const domain = before.registrar.reserve({ domain: 'a.test', authority: 'letsencrypt' })
    before.database.close()
    const { registrar } = openGatewayStores(folder)
    expect(
      serviceCode(() => registrar.reserve({ domain: 'b.test', authority: 'letsencrypt' })),
    ).toBe(215)
    expect(registrar.update(domain, { description: 'x' }).authority).toBe('letsencrypt')
  })

  it('refuses long texts', () => {
    const { registrar } = openGatewayStores()
    const reserve = (text: object) => () => registrar.reserve({ domain: 'a.test', ...text })
    expect(serviceCode(reserve({ description: 'x'.repeat(256) }))).toBe(420)
    expect(serviceCode(reserve({ metadata: 'x'.repeat(4_097) }))).toBe(421)
  })

  it.each([
    ['*.site.test', 'cam.site.test', 446],
    ['*.site.test', 'x.cam.site.test', 446],
    ['*.site.test', '*.site.test', 446],
    ['cam.site.test', 'cam.site.test', 446],
    ['*.site.test', 'site.test', undefined],
    ['*.site.test', 'cam.other.test', undefined],
  ])('asked to give up %s while %s is online: %s', (domain, host, code) => {
    const { registrar, registry } = openGatewayStores()
    const reserved = registrar.reserve({ domain })
    registry.add({ protocol: 'https', host } as Endpoint)
    expect(serviceCode(() => registrar.release(reserved))).toBe(code)
  })
  it('gives up a domain whose names that are online are reserved themselves', () => {
    const { registrar, registry, domains } = openGatewayStores()
    const wildcard = registrar.reserve({ domain: '*.site.test' })
    const door = registrar.reserve({ domain: '*.door.site.test' })
    registrar.reserve({ domain: 'cam.site.test' })
    for (const host of ['cam.site.test', 'x.door.site.test', '*.door.site.test']) {
      registry.add({ protocol: 'https', host } as Endpoint)
    }
    registrar.release(wildcard)
    expect(domains.find('*.site.test')).toBeUndefined()
    expect(serviceCode(() => registrar.release(door))).toBe(446)
  })
})
