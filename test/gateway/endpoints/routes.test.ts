import { describe, expect, it } from 'vitest'
import { type AgentEndpoint, EndpointTraffic } from '../../../src/gateway/endpoints/endpoint.ts'
import { EndpointRegistry } from '../../../src/gateway/endpoints/endpoint-registry.ts'
import {
  ClusterRoutes,
  type Ownership,
  type RemoteEndpoint,
  UnreachableEndpoints,
} from '../../../src/gateway/endpoints/routes.ts'
import { ManualClock } from '../../helpers/manual-clock.ts'

const home = (host: string, more: Partial<RemoteEndpoint> = {}): RemoteEndpoint => ({
  type: 'remote',
  nodeId: 'nd_b',
  protocol: 'https',
  host,
  url: `https://${host}`,
  ownerId: null,
  endsTls: false,
  ...more,
})

const endpoint = (host: string, more: Partial<AgentEndpoint> = {}) =>
  ({
    type: 'agent',
    id: `ep_${host}`,
    ownerId: null,
    protocol: 'https',
    host,
    url: `https://${host}`,
    traffic: new EndpointTraffic(),
    ...more,
  }) as AgentEndpoint

/** Homes by the name that was claimed; wildcards are looked up as they are in a table of claims. */
function site(...homes: RemoteEndpoint[]) {
  const clock = new ManualClock()
  const registry = new EndpointRegistry({ clock })
  const asked: string[] = []
  const ownership = { now: 'owned' as Ownership }
  const coming = new Set<string>()
  const known = { now: true }
  const covers = (name: string, host: string) =>
    name === host || (name.startsWith('*.') && host.endsWith(name.slice(1)))
  const routes = new ClusterRoutes({
    registry,
    clock,
    ownerships: { nodeId: 'nd_a', of: () => ownership.now },
    homes: {
      areKnown: () => known.now,
      find: (entrance, host) => {
        asked.push(host)
        const found = homes.filter((it) => covers(it.host, host) && it.protocol === entrance)
        return found.sort((a, b) => b.host.length - a.host.length)[0]
      },
      coming: (entrance, host) =>
        coming.has(host) && entrance === 'https' ? home(host, { nodeId: 'nd_a' }) : undefined,
      findInternal: (protocol, host, ownerId) =>
        homes.find((it) => it.host === host && it.protocol === protocol && it.ownerId === ownerId),
    },
  })
  return { registry, routes, clock, asked, ownership, coming, known }
}

const AWAY = { credentialId: 'cr_1', deviceId: undefined }

describe('the routes of a node', () => {
  it('lead to what is served here without asking where it is', () => {
    const { registry, routes, asked } = site(home('a.test'))
    registry.add(endpoint('a.test'))
    expect(routes.match('a.test', 'https')).toMatchObject({ type: 'agent' })
    expect(asked).toEqual([])
  })

  it('lead no account to a shared endpoint of another one while names are unknown', () => {
    const { registry, routes, known } = site()
    const shared = endpoint('cam.internal', { ownerId: 'bot_2' })
    registry.add(shared, { isShared: true })
    const url = new URL('https://cam.internal')
    expect(routes.matchInternal(url, 'bot_1')).toBe(shared)
    known.now = false
    expect(routes.matchInternal(url, 'bot_1')?.type).toBe('disconnected')
    expect(routes.matchInternal(url, 'bot_2')).toBe(shared)
  })

  it('lead elsewhere for names that are not here, also from the plain listener', () => {
    const { routes } = site(home('a.test'))
    expect(routes.match('a.test', 'https')).toMatchObject({ nodeId: 'nd_b' })
    expect(routes.match('a.test', 'http')).toMatchObject({ nodeId: 'nd_b' })
    expect(routes.match('b.test', 'https')).toBeUndefined()
  })

  it.each([
    ['x.a.test', 'x.a.test', '*.a.test', 'remote'],
    ['x.a.test', '*.x.a.test', 'x.a.test', 'agent'],
    ['y.x.a.test', '*.a.test', '*.x.a.test', 'agent'],
    ['y.x.a.test', '*.x.a.test', '*.a.test', 'remote'],
  ])('lead for %s to the nearer of %s elsewhere and %s here: %s', (host, there, here, type) => {
    const { registry, routes } = site(home(there))
    registry.add(endpoint(here))
    expect(routes.match(host, 'https')?.type).toBe(type)
  })

  it('lead to where a name has come back, and wait here where it has not', () => {
    const { registry, routes, clock } = site(home('*.test'))
    const lost = endpoint('a.test')
    registry.add(lost)
    registry.suspend(lost, AWAY)
    expect(routes.match('a.test', 'https')?.type).toBe('disconnected')
    void clock.advance(10_001)
    expect(routes.match('a.test', 'https')?.type).toBe('remote')
    const back = site(home('a.test'))
    back.registry.add(lost)
    back.registry.suspend(lost, AWAY)
    expect(back.routes.match('a.test', 'https')?.type).toBe('remote')
    expect(back.routes.successorOf(lost)?.type).toBe('remote')
  })

  it('lead policies to their own internal names first, wherever they are', () => {
    const { registry, routes } = site(home('cam.internal', { ownerId: 'bot_1' }))
    const url = new URL('https://cam.internal')
    registry.add(endpoint('cam.internal', { ownerId: 'bot_2' }), { isShared: true })
    expect(routes.matchInternal(url, 'bot_1')).toMatchObject({ type: 'remote' })
    expect(routes.matchInternal(url, 'bot_3')).toMatchObject({ ownerId: 'bot_2' })
    expect(routes.hasInternal(url, 'bot_1')).toBe(true)
    expect(routes.hasInternal(new URL('https://no.internal'), 'bot_1')).toBe(false)
    expect(routes.hasInternal(new URL('https://cam.internal:99'), 'bot_1')).toBe(false)
    const lost = endpoint('cam.internal', { ownerId: 'bot_1' })
    expect(routes.successorOf(lost)).toMatchObject({ type: 'remote' })
  })

  it('let visitors wait while nobody knows whether they are served here', () => {
    const { registry, routes, ownership } = site()
    const internal = endpoint('cam.internal')
    const wildcard = endpoint('*.b.test')
    for (const own of [endpoint('a.test'), wildcard, internal]) registry.add(own)
    ownership.now = 'unknown'
    const url = new URL('https://cam.internal')
    for (const all of [routes, routes.forPeers]) {
      expect(all.match('a.test', 'https')?.type).toBe('disconnected')
      expect(all.match('x.b.test', 'https')?.type).toBe('disconnected')
      expect(all.matchInternal(url, null)?.type).toBe('disconnected')
      expect(all.successorOf(internal)?.type).toBe('disconnected')
    }
    const away = routes.match('a.test', 'https')
    if (away?.type !== 'disconnected') throw new Error('nobody waits')
    const heard: string[] = []
    const onNameChange = () => void heard.push(routes.match('a.test', 'https')?.type ?? 'nobody')
    const request = { network: '10.0.0.1', bytes: 1, onNameChange }
    expect(routes.wait(away, request)).toBe(true)
    ownership.now = 'owned'
    routes.onSettled()
    expect(heard).toEqual(['agent'])
    expect(routes.forPeers.match('a.test', 'https')?.type).toBe('agent')
  })

  it('refuse no name for good before the names of the others are known', () => {
    const { registry, routes, clock, known } = site()
    for (const host of ['a.test', '*.b.test', 'cam.internal']) registry.add(endpoint(host))
    known.now = false
    const url = new URL('https://other.internal')
    const unknown = [
      routes.match('c.test', 'https'),
      // Another node may have the exact name.
      routes.match('x.b.test', 'https'),
      routes.matchInternal(url, null),
    ]
    for (const found of unknown) {
      if (found?.type !== 'disconnected') throw new Error(`unexpected ${found?.type}`)
      expect(found.isHeld(clock.monotonic())).toBe(false)
    }
    expect(routes.hasInternal(url, null)).toBe(true)
    expect(routes.match('a.test', 'https')?.type).toBe('agent')
    expect(routes.matchInternal(new URL('https://cam.internal'), null)?.type).toBe('agent')
    known.now = true
    expect(routes.match('c.test', 'https')).toBeUndefined()
    expect(routes.match('x.b.test', 'https')?.type).toBe('agent')
    expect(routes.matchInternal(url, null)).toBeUndefined()
  })

  it('send visitors that are counted elsewhere there, and back who was sent here for that', () => {
    const home_ = home('*.b.test')
    const { registry, routes, ownership } = site(home_)
    registry.add(endpoint('*.b.test'))
    registry.add(endpoint('a.test'))
    ownership.now = 'foreign'
    expect(routes.match('x.b.test', 'https')).toBe(home_)
    // Nobody has it at the moment: 404 would be a lie.
    expect(routes.match('a.test', 'https')?.type).toBe('disconnected')
    expect(routes.forPeers.match('x.b.test', 'https')).toBeUndefined()
    expect(routes.forPeers.match('a.test', 'https')).toBeUndefined()
  })

  it('wait for a name whose claim is here before it is open, also for other nodes', () => {
    const { registry, routes, coming } = site()
    coming.add('a.test').add('db.internal')
    const url = new URL('https://db.internal')
    for (const all of [routes, routes.forPeers]) {
      expect(all.match('a.test', 'https')?.type).toBe('disconnected')
      expect(all.match('a.test', 'http')?.type).toBe('disconnected')
      expect(all.match('b.test', 'https')).toBeUndefined()
      expect(all.matchInternal(url, null)?.type).toBe('disconnected')
    }
    registry.add(endpoint('a.test'))
    expect(routes.match('a.test', 'https')?.type).toBe('agent')
  })

  it('forget a request that waits no more, wherever it has waited', () => {
    const { registry, routes } = site(home('a.test'))
    const lost = endpoint('b.test')
    registry.add(lost)
    registry.suspend(lost, AWAY)
    const away = routes.match('b.test', 'https')
    if (away?.type !== 'disconnected') throw new Error('nobody waits')
    const unreached = routes.holdHome(home('a.test'))
    const request = { network: '10.0.0.1', bytes: 1, onNameChange: () => {} }
    for (const name of [away, unreached]) expect(routes.wait(name, request)).toBe(true)
    expect([registry.held.size, routes.waiting]).toEqual([1, 1])
    for (const name of [away, unreached]) routes.cancel(name, request)
    expect([registry.held.size, routes.waiting]).toEqual([0, 0])
  })

  it('let those go who wait when a node can be reached, or a name has moved', () => {
    const { routes } = site()
    const heard: string[] = []
    const request = (name: string) => ({
      network: '10.0.0.1',
      bytes: 1,
      onNameChange: () => void heard.push(name),
    })
    const [a, b, c] = [home('a.test'), home('b.test', { nodeId: 'nd_c' }), home('c.test')]
    for (const it of [a, b]) expect(routes.wait(routes.holdHome(it), request(it.host))).toBe(true)
    const gone = request('c.test')
    routes.wait(routes.holdHome(c), gone)
    routes.cancel(routes.holdHome(c), gone)
    expect(routes.waiting).toBe(2)
    routes.onNodeUp('nd_b')
    expect(heard).toEqual(['a.test'])
    routes.onHomeChange('b.test')
    expect(heard).toEqual(['a.test', 'b.test'])
  })
})

describe('homes that cannot be reached', () => {
  it('are waited for once, and again after a rest', () => {
    const homes = new UnreachableEndpoints(1_000)
    const request = { network: '10.0.0.1', bytes: 1, onNameChange() {} }
    const first = homes.hold(home('a.test'), 0)
    expect(homes.wait(first, request, 999)).toBe(true)
    homes.cancel(first, request)
    expect(homes.hold(home('a.test'), 1_001)).toBe(first)
    expect(homes.wait(first, request, 1_001)).toBe(false)
    const later = homes.hold(home('a.test'), 6_000)
    expect(later).not.toBe(first)
    expect(homes.has(first)).toBe(false)
    expect(homes.hold(home('a.test', { nodeId: 'nd_c' }), 6_000)).not.toBe(later)
  })

  it('are not more than so many', () => {
    const homes = new UnreachableEndpoints(1_000)
    const first = homes.hold(home('first.test'), 0)
    for (let at = 0; at < 10_000; at += 1) homes.hold(home(`n${at}.test`), 0)
    expect(homes.size).toBe(10_000)
    expect(homes.has(first)).toBe(false)
  })
})
