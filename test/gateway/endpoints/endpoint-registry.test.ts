import { describe, expect, it } from 'vitest'
import type { AgentEndpoint, Endpoint } from '../../../src/gateway/endpoints/endpoint.ts'
import {
  EndpointConflictError,
  EndpointRegistry,
} from '../../../src/gateway/endpoints/endpoint-registry.ts'

const endpoint = (host: string, ownerId: string | null = null) =>
  ({ id: `ep_${host} ${ownerId}`, protocol: 'https', host, ownerId }) as Endpoint

function registryOf(...hosts: string[]) {
  const registry = new EndpointRegistry()
  for (const host of hosts) registry.add(endpoint(host))
  return registry
}

describe('EndpointRegistry', () => {
  it.each([
    ['a.site.test', ['a.site.test'], 'a.site.test'],
    ['b.site.test', ['a.site.test'], undefined],
    ['a.site.test', ['*.site.test', 'a.site.test'], 'a.site.test'],
    ['b.site.test', ['*.site.test', 'a.site.test'], '*.site.test'],
    ['x.y.site.test', ['*.site.test'], '*.site.test'],
    ['x.y.site.test', ['*.site.test', '*.y.site.test'], '*.y.site.test'],
    ['x.z.site.test', ['*.site.test', '*.y.site.test'], '*.site.test'],
    ['site.test', ['*.site.test'], undefined],
    ['.site.test', ['*.site.test'], undefined],
    ['evilsite.test', ['*.site.test'], undefined],
    ['', ['*.test'], undefined],
    ['test', ['*.test'], undefined],
  ])('finds for %j among %j: %j', (host, hosts, expected) => {
    expect(registryOf(...hosts).match(host)?.host).toBe(expected)
  })

  it('keeps the endpoints of a host apart by scheme and port', () => {
    const at = (protocol: Endpoint['protocol'], host: string) =>
      ({ ...endpoint(host), id: `ep_${protocol} ${host}`, protocol }) as Endpoint
    const [http, https] = [at('http', 'a.site.test'), at('https', 'a.site.test')]
    const [ssh, sql] = [at('tcp', 'site.test:2022'), at('tcp', 'site.test:5432')]
    const registry = new EndpointRegistry()
    for (const each of [http, https, ssh, sql]) registry.add(each)
    expect(registry.match('a.site.test', 'http')).toBe(http)
    expect(registry.match('a.site.test', 'https')).toBe(https)
    expect(registry.match('site.test:2022', 'tcp')).toBe(ssh)
    expect(registry.match('site.test:5432', 'tcp')).toBe(sql)
    expect(registry.match('site.test:22', 'tcp')).toBeUndefined()
    expect(() => registry.add(at('tls', 'a.site.test'))).toThrow(EndpointConflictError)
    registry.remove(http)
    expect(registry.match('a.site.test', 'http')).toBe(https)
    registry.remove(https)
    registry.add(http)
    expect(registry.match('a.site.test', 'https')).toBeUndefined()
    expect(registry.size).toBe(3)
  })

  it('leads plain HTTP to a wildcard if the exact HTTPS name may not answer or is not held', () => {
    const refused = new Set<string>()
    const owners = { mayAnswer: (_host: string, { host }: { host: string }) => !refused.has(host) }
    const registry = new EndpointRegistry({ owners, holdMs: 0 })
    const [exact, wildcard] = [endpoint('a.site.test'), endpoint('*.site.test')]
    for (const each of [exact, wildcard]) registry.add(each)
    expect(registry.match('a.site.test', 'http')).toBe(exact)
    refused.add('a.site.test')
    expect(registry.match('a.site.test', 'http')).toBe(wildcard)
    refused.clear()
    registry.suspend(exact as AgentEndpoint, { credentialId: 'cr_a', deviceId: undefined })
    expect(registry.match('a.site.test', 'http')).toBe(wildcard)
  })

  it.each(['a.site.test', '*.site.test'])('refuses a second endpoint on %s', (host) => {
    const registry = registryOf(host)
    expect(() => registry.add(endpoint(host))).toThrow(EndpointConflictError)
    expect(registry.size).toBe(1)
  })

  it('shows internal endpoints to policies and never to visitors', () => {
    const registry = new EndpointRegistry()
    const internal = { ...endpoint('cam.site.internal'), protocol: 'https' } as Endpoint
    registry.add(internal)
    registry.add(endpoint('*.internal'))
    expect(registry.match('cam.site.internal')).toBeUndefined()
    expect(registry.match('x.internal')).toBeUndefined()
    const find = (url: string) => registry.matchInternal(new URL(url), null)
    expect(find('https://cam.site.internal')).toBe(internal)
    expect(find('https://CAM.site.internal:443/')).toBe(internal)
    expect(find('http://cam.site.internal')).toBeUndefined()
    expect(find('https://cam.site.internal:8443')).toBeUndefined()
    expect(find('https://a.site.test')).toBeUndefined()
    expect([registry.size, [...registry.all()].length]).toEqual([2, 2])
    expect(registry.remove(internal)).toBe(true)
    expect(find('https://cam.site.internal')?.host).toBe('*.internal')
    expect(find('http://cam.site.internal')).toBeUndefined()
  })

  it('keeps internal names of each account apart', () => {
    const registry = new EndpointRegistry()
    const of = (ownerId: string | null, host = 'cam.internal') =>
      ({ ...endpoint(host, ownerId), protocol: 'https' }) as Endpoint
    const [a, b, free] = [of('bot_a'), of('bot_b'), of(null)]
    const find = (ownerId: string | null, host = 'cam.internal') =>
      registry.matchInternal(new URL(`https://${host}`), ownerId)
    registry.add(a)
    expect([find('bot_a'), find('bot_b'), find(null)]).toEqual([a, undefined, undefined])
    registry.add(free)
    registry.add(b)
    expect([find('bot_a'), find('bot_b'), find(null)]).toEqual([a, b, free])
    expect([
      registry.holdersOf({ protocol: 'https', host: 'cam.internal' }, 'bot_b')[0],
      registry.size,
    ]).toEqual([b, 3])
    expect(() => registry.add(of('bot_b'))).toThrow(EndpointConflictError)
    registry.remove(b)
    expect([find('bot_b'), [...registry.all()].length]).toEqual([undefined, 2])
    registry.add(of('bot_b', '*.internal'))
    expect(find('bot_b')?.host).toBe('*.internal')
    expect(find('bot_c')).toBeUndefined()
  })

  it('shows a shared name to all accounts, after their own, and to one sharer at a time', () => {
    const registry = new EndpointRegistry()
    const of = (ownerId: string, host = 'cam.internal') =>
      ({ ...endpoint(host, ownerId), protocol: 'https' }) as Endpoint
    const [a, b] = [of('bot_a'), of('bot_b')]
    const find = (ownerId: string) =>
      registry.matchInternal(new URL('https://cam.internal'), ownerId)
    registry.add(a, { isShared: true })
    expect([find('bot_a'), find('bot_b'), registry.isShared(a)]).toEqual([a, a, true])
    expect(() => registry.add(b, { isShared: true })).toThrow(EndpointConflictError)
    expect([registry.find(b.id), registry.size]).toEqual([undefined, 1])
    registry.add(b)
    expect([find('bot_b'), find('bot_c')]).toEqual([b, a])
    expect([registry.setShared(b, true), registry.isShared(b)]).toEqual([false, false])
    const changed = { ...a }
    registry.replace(a, changed)
    expect(find('bot_c')).toBe(changed)
    expect(registry.setShared(changed, false)).toBe(true)
    expect([find('bot_a'), find('bot_c')]).toEqual([changed, undefined])
    registry.setShared(b, true)
    registry.remove(b)
    expect([
      find('bot_c'),
      registry.sharersOf({ protocol: 'https', host: 'cam.internal' })[0],
    ]).toEqual([undefined, undefined])
  })

  it('puts a changed endpoint in the place of what it was, on another host too', () => {
    const registry = registryOf('b.site.test')
    const first = endpoint('a.site.test')
    registry.add(first)
    const changed = { ...first }
    registry.replace(first, changed)
    expect(registry.match('a.site.test')).toBe(changed)
    const moved = { ...changed, host: '*.site.test' }
    registry.replace(changed, moved)
    expect(registry.match('a.site.test')).toBe(moved)
    expect(registry.holdersOf({ protocol: 'https', host: 'a.site.test' }, null)[0]).toBeUndefined()
    const clash = { ...moved, host: 'b.site.test' }
    expect(() => registry.replace(moved, clash)).toThrow(EndpointConflictError)
    expect(registry.holdersOf({ protocol: 'https', host: '*.site.test' }, null)[0]).toBe(moved)
    expect(registry.size).toBe(2)
  })

  it('keeps the holder when another endpoint of that host is removed', () => {
    const registry = registryOf('a.site.test')
    expect(registry.remove(endpoint('a.site.test'))).toBe(false)
    expect(registry.match('a.site.test')).toBeDefined()
  })

  it('removes once and takes the host again', () => {
    const registry = new EndpointRegistry()
    const first = endpoint('*.site.test')
    registry.add(first)
    expect(registry.remove(first)).toBe(true)
    expect(registry.remove(first)).toBe(false)
    registry.add(endpoint('*.site.test'))
    expect([...registry.all()].map(({ host }) => host)).toEqual(['*.site.test'])
  })
})
