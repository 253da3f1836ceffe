import { describe, expect, it } from 'vitest'
import {
  type AgentEndpoint,
  type Endpoint,
  EndpointTraffic,
} from '../../../src/gateway/endpoints/endpoint.ts'
import { checkAddressFree } from '../../../src/gateway/endpoints/endpoint-host.ts'
import { MAX_POOL_MEMBERS, PoolAffinity } from '../../../src/gateway/endpoints/endpoint-pool.ts'
import {
  EndpointConflictError,
  EndpointRegistry,
} from '../../../src/gateway/endpoints/endpoint-registry.ts'
import type { EndpointProtocol } from '../../../src/gateway/records/endpoint-protocol.ts'
import { serviceCode } from '../../helpers/service-code.ts'

const HOST = 'cam.site.test'
const WHO = { credentialId: 'cr_a', deviceId: 'device-7' }

/** An endpoint of a pool, unless `poolMember` is undefined. */
const member = (poolMember: string | undefined, more: Partial<AgentEndpoint> = {}) =>
  ({
    type: 'agent',
    id: `ep_${poolMember}`,
    protocol: 'https',
    host: HOST,
    url: `https://${HOST}`,
    ownerId: null,
    poolMember,
    traffic: new EndpointTraffic(),
    ...more,
  }) as AgentEndpoint

function poolOf(members: readonly Endpoint[], affinity?: PoolAffinity) {
  const registry = new EndpointRegistry({ affinity })
  for (const each of members) registry.add(each)
  return registry
}

/** Serves one request, and answers who did. */
function serveAt(registry: EndpointRegistry, host = HOST, protocol: EndpointProtocol = 'https') {
  const endpoint = registry.match(host, protocol) as Endpoint | undefined
  endpoint?.traffic.countBegin()
  if (endpoint) endpoint.traffic.active -= 1
  return endpoint
}

const networks = Array.from({ length: 200 }, (_, index) => `192.0.2.${index}`)

describe('a pool', () => {
  it('gives each request to the least busy member, and to equals in turn', () => {
    const [a, b, c] = [member('a'), member('b'), member('c')]
    const registry = poolOf([a, b, c])
    const next = () => serveAt(registry)?.poolMember
    expect([next(), next(), next(), next()]).toEqual(['a', 'b', 'c', 'a'])
    // To look changes nothing: TLS looks before the request does.
    expect([registry.match(HOST, 'tls'), registry.match(HOST, 'https')]).toEqual([b, b])
    a.traffic.active = 2
    b.traffic.active = 1
    expect([next(), next()]).toEqual(['c', 'c'])
    c.traffic.active = 5
    expect(next()).toBe('b')
    expect([registry.size, [...registry.all()].length]).toEqual([3, 3])
    expect(registry.holdersOf(a, null)).toHaveLength(3)
  })

  it('serves wildcards and plain listeners as a single endpoint would', () => {
    const [a, b] = ['a', 'b'].map((name) => member(name, { host: '*.site.test' })) as [
      Endpoint,
      Endpoint,
    ]
    const registry = poolOf([a, b])
    const next = () => serveAt(registry, 'x.site.test', 'http')
    expect([next(), next()]).toEqual([a, b])
  })

  it('leaves out at once who is gone, and is away when the last one is', () => {
    const [a, b] = [member('a'), member('b')]
    const registry = poolOf([a, b])
    expect(registry.suspend(a, WHO)).toBeUndefined()
    expect([registry.match(HOST, 'https'), registry.match(HOST, 'https')]).toEqual([b, b])
    const away = registry.suspend(b, WHO)
    expect(registry.match(HOST, 'https')).toBe(away)
    // Another device may bring it back: that this one does not says nothing.
    registry.endReturn(registry.startReturn({ ownerId: null, ...WHO }, 10_000))
    registry.endReturnElsewhere({ ownerId: null, ...WHO })
    expect(registry.match(HOST, 'https')).toBe(away)
    registry.add(a)
    expect(registry.match(HOST, 'https')).toBe(a)
    registry.remove(a)
    expect([registry.match(HOST, 'https'), registry.size]).toEqual([undefined, 0])
  })

  it('names as successor who took the place of a member, else another member', () => {
    const [a, b] = [member('a'), member('b')]
    const registry = poolOf([a, b])
    expect(registry.successorOf(a)).toBe(b)
    const changed = { ...a, id: 'ep_changed' }
    registry.replace(a, changed)
    expect(registry.successorOf(a)).toBe(changed)
    registry.remove(changed)
    expect(registry.successorOf(a)).toBe(b)
    registry.remove(b)
    expect(registry.successorOf(a)).toBeUndefined()
  })

  it('takes nobody who is not for a pool, of another account or protocol', () => {
    const a = member('a')
    const registry = poolOf([a])
    for (const stranger of [
      member(undefined),
      member('b', { ownerId: 'bot_b' }),
      member('b', { protocol: 'tls' }),
    ]) {
      expect(() => registry.add(stranger)).toThrow(EndpointConflictError)
    }
    const alone = poolOf([member(undefined)])
    expect(() => alone.add(a)).toThrow(EndpointConflictError)
    expect([registry.size, alone.size]).toEqual([1, 1])
  })

  it('stays as it is when a member cannot become what it wants to be', () => {
    const [a, b] = [member('a'), member('b')]
    const registry = poolOf([a, b])
    expect(() => registry.replace(a, member(undefined))).toThrow(EndpointConflictError)
    expect(registry.holdersOf(a, null)).toEqual(expect.arrayContaining([a, b]))
    registry.remove(b)
    const alone = member(undefined)
    registry.replace(a, alone)
    expect(registry.match(HOST, 'https')).toBe(alone)
  })

  it('is shared with other accounts by those of its members that are', () => {
    const [a, b] = ['a', 'b'].map((name) =>
      member(name, { host: 'cam.internal', ownerId: 'bot_a' }),
    ) as [Endpoint, Endpoint]
    const registry = new EndpointRegistry()
    registry.add(a, { isShared: true })
    registry.add(b)
    const find = () => registry.matchInternal(new URL('https://cam.internal'), 'bot_b')
    expect([find(), find(), registry.isShared(a), registry.isShared(b)]).toEqual([
      a,
      a,
      true,
      false,
    ])
    expect(registry.setShared(b, true)).toBe(true)
    a.traffic.countBegin()
    expect(find()).toBe(b)
    expect(registry.hasInternal(new URL('https://cam.internal'), 'bot_b')).toBe(true)
  })
})

describe('affinity', () => {
  const places = (registry: EndpointRegistry) =>
    networks.map((network) => (registry.match(HOST, 'https', network) as Endpoint).poolMember)

  it('leads each client to one member, and clients to all of them', () => {
    const members = ['a', 'b', 'c'].map((name) => member(name))
    const registry = poolOf(members, new PoolAffinity())
    const first = places(registry)
    for (const [index, { traffic }] of members.entries()) traffic.active = 9 - index
    expect(places(registry)).toEqual(first)
    const counts = ['a', 'b', 'c'].map((name) => first.filter((one) => one === name).length)
    for (const count of counts) expect(count).toBeGreaterThan(networks.length / 6)
  })

  it('keeps clients where they are when members come, and moves those of one that goes', () => {
    const [a, b, c] = [member('a'), member('b'), member('c')]
    const registry = poolOf([a, b], new PoolAffinity())
    const first = places(registry)
    registry.add(c)
    expect(places(registry)).toEqual(first)
    registry.remove(b)
    const moved = places(registry)
    expect(moved.filter((one, index) => first[index] === 'a' && one !== 'a')).toEqual([])
    expect(moved).not.toContain('b')
    expect(new Set(moved)).toEqual(new Set(['a', 'c']))
  })

  it('moves nobody who was forgotten while the members are the same', () => {
    const members = ['a', 'b', 'c'].map((name) => member(name))
    const first = places(poolOf(members, new PoolAffinity(10)))
    expect(places(poolOf(members, new PoolAffinity()))).toEqual(first)
  })

  it('forgets the client that has not come for longest', () => {
    const registry = poolOf([member('a')], new PoolAffinity(2))
    for (const network of ['1', '2', '1', '3']) registry.match(HOST, 'https', network)
    for (let index = 0; index < 50; index += 1) registry.add(member(`n${index}`))
    const placeOf = (network: string) =>
      (registry.match(HOST, 'https', network) as Endpoint).poolMember
    expect([placeOf('1'), placeOf('3')]).toEqual(['a', 'a'])
    expect(placeOf('2')).not.toBe('a')
  })
})

describe('checkAddressFree', () => {
  const claim = (more: object = {}) => ({
    protocol: 'https' as const,
    host: HOST,
    ownerId: null,
    isShared: false,
    isPooled: true,
    ...more,
  })

  it.each<[string, Endpoint[], object, number | undefined]>([
    ['nobody there', [], {}, undefined],
    ['a pool', [member('a')], {}, undefined],
    ['pooling where there is none', [member(undefined)], {}, 18016],
    ['no pooling where there is some', [member('a')], { isPooled: false }, 18017],
    ['two without', [member(undefined)], { isPooled: false }, 334],
    ['the pool of another account', [member('a', { ownerId: 'bot_b' })], {}, 334],
    ['that, without pooling', [member('a', { ownerId: 'bot_b' })], { isPooled: false }, 334],
    ['a pool of another protocol', [member('a', { protocol: 'tls' })], {}, 334],
  ])('judges %s', (_, there, more, code) => {
    expect(serviceCode(() => checkAddressFree(claim(more), poolOf(there)))).toBe(code)
  })

  it('leaves out who is going to be gone', () => {
    const [a, b] = [member('a'), member('b')]
    const alone = claim({ isPooled: false })
    expect(serviceCode(() => checkAddressFree(alone, poolOf([a]), a))).toBeUndefined()
    expect(serviceCode(() => checkAddressFree(alone, poolOf([a, b]), a))).toBe(18017)
  })

  it('bounds a pool', () => {
    const members = Array.from({ length: MAX_POOL_MEMBERS }, (_, index) => member(`${index}`))
    const full = poolOf(members)
    expect(serviceCode(() => checkAddressFree(claim(), full))).toBe(18021)
    expect(serviceCode(() => checkAddressFree(claim(), full, members[0]))).toBeUndefined()
  })
})
