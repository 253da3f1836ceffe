import { PassThrough } from 'node:stream'
import { describe, expect, it } from 'vitest'
import { type AgentEndpoint, EndpointTraffic } from '../../../src/gateway/endpoints/endpoint.ts'
import {
  ClusterRoutes,
  type RemoteEndpoint,
  type RemoteEndpoints,
} from '../../../src/gateway/endpoints/routes.ts'
import { CONTINUE, type Outcome, respond } from '../../../src/policy/exchange/outcome.ts'
import type { PolicyExchange } from '../../../src/policy/exchange/policy-exchange.ts'
import type { CompiledPolicy } from '../../../src/policy/policy.ts'
import { eventually } from '../../helpers/eventually.ts'
import { turns } from '../../helpers/frame-peer.ts'
import type { MemorySite, MemorySiteOptions } from '../../helpers/memory-site.ts'
import { startHandSite } from './hand-device.ts'

const OK = 'HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok'
const WHO = { credentialId: 'cr_a' }
const LOST = 'ERR_NGROK_3210'
const AWAY = 'ERR_GATEWAY_AWAY'

const request = (method = 'GET', more = '') => `${method} / HTTP/1.1\r\nHost: a.test\r\n${more}\r\n`

/** As an agent session does it when it ends: its names are away, its streams are gone. */
async function lose(site: MemorySite, endpoint = site.endpoint): Promise<void> {
  site.registry.suspend(endpoint, WHO)
  endpoint.streams.cut()
  await turns()
}

/** Routes of a gateway that has heard of others, and has no link to them; `made` gets them. */
const oneOfSeveral =
  (
    homes: Partial<RemoteEndpoints>,
    made: ClusterRoutes[] = [],
  ): NonNullable<MemorySiteOptions['routes']> =>
  (registry, clock) => {
    const routes = new ClusterRoutes({
      registry,
      homes: { find: () => undefined, findInternal: () => undefined, ...homes },
      ownerships: { nodeId: 'nd_here', of: () => 'owned' },
      clock,
    })
    made.push(routes)
    return routes
  }

/** A policy that notes what it judges. */
function noting(onHttpRequest: (exchange: PolicyExchange) => Outcome = () => CONTINUE) {
  const judged: string[] = []
  const policy: Partial<CompiledPolicy> = {
    hasRequestRules: true,
    hasResponseRules: true,
    onHttpRequest: (exchange) => {
      judged.push('request')
      exchange.whenUpstreamEnds((status) => judged.push(`ended ${status}`))
      return onHttpRequest(exchange)
    },
    onHttpResponse: () => {
      judged.push('response')
      return CONTINUE
    },
  }
  return { judged, policy }
}

describe('a request whose name is away', () => {
  it('is served when the device is back, and counts there alone', async () => {
    const { device, site, visit, read } = await startHandSite()
    await lose(site)
    const client = await visit(request('POST', 'Content-Length: 5\r\n').concat('hello'))
    expect(site.registry.held.size).toBe(1)
    expect(site.registry.held.bytes).toBeGreaterThanOrEqual('hello'.length)
    expect(device.streams).toEqual([])
    const back = site.bind('a.test')
    await turns()
    expect(device.last.text).toMatch(/\r\n\r\nhello$/)
    device.last.send(OK)
    expect(await read(client)).toBe(OK)
    expect(site.registry.held).toMatchObject({ size: 0, bytes: 0, clients: 0 })
    expect(site.endpoint.traffic).toMatchObject({ requests: 0, bytesIn: 0 })
    expect(back.traffic).toMatchObject({ requests: 1, active: 0, refused: 0 })
    expect(back.traffic.bytesIn).toBe(device.last.text.length)
  })

  it('is answered when the time is up, and the connection goes on', async () => {
    const { device, site, visit, read } = await startHandSite()
    await lose(site)
    const client = await visit(request())
    await site.advance(9_000)
    expect(await read(client)).toBe('')
    await site.advance(2_000)
    const answer = await read(client)
    expect(answer).toMatch(/^HTTP\/1\.1 503 .*ERR_GATEWAY_AWAY/s)
    expect(answer).not.toContain('connection: close')
    site.bind('a.test')
    client.send(request())
    await turns()
    device.last.send(OK)
    expect((await read(client)).slice(answer.length)).toBe(OK)
  })

  it('is answered when the name is forgotten', async () => {
    const { site, visit, read } = await startHandSite()
    await lose(site)
    const client = await visit(request())
    site.registry.forgetUnless(() => false)
    expect(await read(client)).toContain('ERR_NGROK_3200')
  })

  it('does not go to another account that takes its name', async () => {
    const { device, site, visit, read } = await startHandSite()
    const { endpoint } = site
    await lose(site)
    const client = await visit(request())
    const { streams } = site.plain
    site.registry.add({ ...endpoint, id: 'ep_other', ownerId: 'bot_b', streams })
    expect(await read(client)).toContain('ERR_NGROK_3200')
    expect(device.streams).toEqual([])
  })

  it('is answered at once where there is no place to wait', async () => {
    const { site, visit, read } = await startHandSite({ registry: { held: { requests: 2 } } })
    await lose(site)
    await visit(request())
    expect(await read(await visit(request()))).toMatch(/^HTTP\/1\.1 503 .*ERR_GATEWAY_AWAY/s)
    expect(site.registry.held.size).toBe(1)
  })

  it('waits for as long as its client stays', async () => {
    const { device, site, visit, read } = await startHandSite()
    await lose(site)
    const client = await visit(request())
    client.finish()
    await read(client)
    expect(client.ending).toBe('end')
    expect(site.registry.held).toMatchObject({ size: 0, bytes: 0, clients: 0 })
    site.bind('a.test')
    await turns()
    expect(device.streams).toEqual([])
  })

  it('waits behind a policy that hands it on, and is judged once', async () => {
    const { judged, policy } = noting(() => ({ kind: 'forward', url: 'http://cam.internal' }))
    const { device, site, visit, read } = await startHandSite({ policy })
    const open = () =>
      site.bind('cam.internal', { onHttpRequest: () => CONTINUE, onHttpResponse: () => CONTINUE })
    await lose(site, open())
    const client = await visit(request())
    expect(site.registry.held.size).toBe(1)
    const back = open()
    await turns()
    device.last.send(OK)
    expect(await read(client)).toBe(OK)
    expect(judged).toEqual(['request', 'ended 200', 'response'])
    for (const { traffic } of [site.endpoint, back]) {
      expect(traffic).toMatchObject({ requests: 1, active: 0, refused: 0, bytesOut: OK.length })
    }
  })

  it('waits behind a policy that has rewritten its body, for a gateway that it is handed on to', async () => {
    const url = 'http://c.internal'
    const place = { type: 'remote', nodeId: 'nd_other', endsTls: false } as const
    const home: RemoteEndpoint = {
      ...place,
      protocol: 'http',
      host: 'c.internal',
      url,
      ownerId: null,
    }
    const { policy } = noting((exchange) => {
      exchange.transformRequest({ isWhole: false, create: () => new PassThrough() })
      return { kind: 'forward', url }
    })
    const made: ClusterRoutes[] = []
    const routes = oneOfSeveral({ findInternal: () => home }, made)
    const { site, visit, read } = await startHandSite({ policy, routes })
    const client = await visit(`${request('POST', 'Content-Length: 2\r\n')}ok`)
    await eventually(() => expect(made[0]?.waiting).toBe(1))
    await site.advance(10_000)
    expect(await read(client)).toContain(AWAY)
    expect(site.captured.lines).toEqual([])
  })

  it('behind a policy counts as no answer of the device where it cannot wait', async () => {
    const { judged, policy } = noting(() => ({ kind: 'forward', url: 'http://cam.internal' }))
    const { site, visit, read } = await startHandSite({ policy, registry: { holdMs: 0 } })
    await lose(site, site.bind('cam.internal'))
    expect(await read(await visit(request()))).toContain(AWAY)
    expect(judged).toEqual(['request', 'ended undefined'])
    expect([...site.endpoint.traffic.errors]).toEqual([[AWAY, 1]])
  })
})

describe('a request whose device is lost under it', () => {
  it.each(['GET', 'HEAD', 'OPTIONS'])('goes out again when it is a %s', async (method) => {
    const { device, site, free, visit, read } = await startHandSite()
    const client = await visit(request(method))
    await lose(site)
    expect(device.last.isEnded).toBe(true)
    expect(site.registry.held.size).toBe(1)
    const back = site.bind('a.test')
    await turns()
    expect(device.streams.map(({ text }) => text.split(' ')[0])).toEqual([method, method])
    device.last.send(method === 'HEAD' ? OK.slice(0, -2) : OK)
    expect(await read(client)).toMatch(/^HTTP\/1\.1 200 OK/)
    expect(site.endpoint.traffic).toMatchObject({ requests: 0, active: 0, refused: 0 })
    expect(site.endpoint.traffic.outcomes).toMatchObject({ waiting: 0 })
    expect(site.endpoint.traffic.outcomes.counts).toMatchObject({ abandoned: 0, answered: 0 })
    expect(back.traffic).toMatchObject({ requests: 1, active: 0, refused: 0 })
    expect(back.traffic.outcomes.counts).toMatchObject({ answered: 1 })
    expect(site.session.freeSlots).toBe(free - 1)
  })

  it.each([
    ['a POST', request('POST'), ''],
    ['a DELETE', request('DELETE'), ''],
    ['a GET with a body', request('GET', 'Content-Length: 2\r\n').concat('hi'), ''],
    ['one of which the visitor has heard', request(), 'HTTP/1.1 103 Early Hints\r\n\r\n'],
  ])('does not when it is %s', async (_what, text, answer) => {
    const { device, site, visit, read } = await startHandSite()
    const client = await visit(text)
    device.last.send(answer)
    await turns()
    await lose(site)
    expect(await read(client)).toContain(LOST)
    expect(site.registry.held.size).toBe(0)
    expect([...site.endpoint.traffic.errors]).toEqual([[LOST, 1]])
  })

  it('is broken off when its response has begun', async () => {
    const { device, site, visit, read } = await startHandSite()
    const client = await visit(request())
    device.last.send(OK.slice(0, -1))
    await read(client)
    await lose(site)
    await read(client)
    expect(client.ending).toBe('reset')
    expect(site.registry.held.size).toBe(0)
    expect(site.endpoint.traffic).toMatchObject({ active: 0, refused: 1 })
  })

  it('goes out twice more at most: it may be what ends the device', async () => {
    const { device, site, visit, read } = await startHandSite()
    const client = await visit(request())
    let endpoint = site.endpoint
    for (let loss = 1; loss <= 2; loss += 1) {
      await lose(site, endpoint)
      endpoint = site.bind('a.test')
      await turns()
      expect(device.streams).toHaveLength(loss + 1)
    }
    await lose(site, endpoint)
    expect(await read(client)).toContain(LOST)
    expect(device.streams).toHaveLength(3)
  })

  it('goes on whatever it is, four times, when no device has got it', async () => {
    const { device, site, visit, read } = await startHandSite({ openStreams: 4 })
    // Others have all streams that there are.
    const others: Awaited<ReturnType<typeof visit>>[] = []
    while (site.slots.waiting === 0)
      others.push(await visit('GET / HTTP/1.1\r\nHost: b.test\r\n\r\n'))
    const before = site.slots.waiting
    const client = await visit(request('POST'))
    let endpoint = site.endpoint
    for (let loss = 1; loss <= 4; loss += 1) {
      expect(site.slots.waiting).toBe(before + 1)
      await lose(site, endpoint)
      expect(site.registry.held.size).toBe(1)
      endpoint = site.bind('a.test')
      await turns()
    }
    expect(await read(client)).toBe('')
    await lose(site, endpoint)
    expect(await read(client)).toContain(LOST)
    expect(device.streams.filter(({ text }) => text.startsWith('POST'))).toEqual([])
    expect(site.slots.waiting).toBe(before)
    for (const other of others) other.reset()
    await turns()
  })

  it.each([
    ['without a policy', {}],
    ['below one', noting().policy],
  ])('takes its body along %s, when no device has got it', async (_what, policy) => {
    const { device, site, visit, read } = await startHandSite({ openStreams: 4, policy })
    const others: Awaited<ReturnType<typeof visit>>[] = []
    while (site.slots.waiting === 0)
      others.push(await visit('GET / HTTP/1.1\r\nHost: b.test\r\n\r\n'))
    others.pop()?.reset()
    const client = await visit(request('POST', 'Content-Length: 5\r\n').concat('hello'))
    await lose(site)
    site.bind('a.test', policy)
    for (const other of others) other.reset()
    await turns()
    expect(device.last.text).toMatch(/^POST .*\r\n\r\nhello$/s)
    device.last.send(OK)
    expect(await read(client)).toBe(OK)
  })

  it('goes out again below a policy, which has judged it once', async () => {
    const { judged, policy } = noting()
    const { device, site, visit, read } = await startHandSite({ policy })
    const client = await visit(request())
    await lose(site)
    const back = site.bind('a.test', policy)
    await turns()
    expect(device.last.text).toBe(device.streams[0]?.text)
    device.last.send(OK)
    expect(await read(client)).toBe(OK)
    expect(judged).toEqual(['request', 'ended 200', 'response'])
    expect(site.endpoint.traffic).toMatchObject({ requests: 0, active: 0 })
    expect(back.traffic).toMatchObject({ requests: 1, active: 0 })
  })

  it('is judged by what it comes to where nothing has judged it before', async () => {
    const { judged, policy } = noting(() => respond({ status: 418, headers: [], body: 'no' }))
    const { site, visit, read } = await startHandSite()
    const client = await visit(request())
    await lose(site)
    site.bind('a.test', policy)
    expect(await read(client)).toMatch(/^HTTP\/1\.1 418 /)
    // It had come to no device.
    expect(judged).toEqual(['request', 'ended 499'])
  })

  it('follows its name at once where that has been taken over', async () => {
    const { device, site, visit, read } = await startHandSite()
    const client = await visit(request())
    site.registry.remove(site.endpoint)
    const after = site.bind('a.test')
    site.endpoint.streams.cut()
    await turns()
    expect(site.registry.held.size).toBe(0)
    device.last.send(OK)
    expect(await read(client)).toBe(OK)
    expect(after.traffic.requests).toBe(1)
  })

  it('leaves its policy, and is counted no more, where its name has gone to another gateway', async () => {
    const { judged, policy } = noting()
    const homes = new Map<string, RemoteEndpoint>()
    const routes = oneOfSeveral({ find: (_entrance, host) => homes.get(host) })
    const { device, site, visit, read } = await startHandSite({ policy, routes })
    const client = await visit(request())
    const { protocol, host, url, ownerId } = site.endpoint
    const place = { type: 'remote', nodeId: 'nd_other', endsTls: false } as const
    homes.set(host, { ...place, protocol, host, url, ownerId })
    site.registry.remove(site.endpoint)
    site.endpoint.streams.cut()
    await turns()
    // There is no link to that gateway: the request waits for it, without any account here.
    expect(judged).toEqual(['request', 'ended undefined'])
    expect(site.endpoint.traffic).toMatchObject({ active: 0, requests: 0 })
    await site.advance(10_000)
    expect(await read(client)).toContain(AWAY)
    expect(device.streams).toHaveLength(1)
  })

  it('leaves with its client before anybody has looked where the name is', async () => {
    const { device, site, visit } = await startHandSite()
    const client = await visit(request())
    site.registry.suspend(site.endpoint, WHO)
    site.endpoint.streams.cut()
    client.reset()
    await turns()
    expect(site.registry.held.size).toBe(0)
    site.bind('a.test')
    await turns()
    expect(device.streams).toHaveLength(1)
    expect(site.endpoint.traffic).toMatchObject({ active: 0 })
    expect(site.captured.lines).toEqual([])
  })

  /** Puts something else in the place of the endpoint that was lost. */
  const successors: [
    string,
    (endpoint: AgentEndpoint) => Parameters<MemorySite['registry']['add']>[0],
  ][] = [
    [
      'an endpoint of another account',
      (endpoint) => ({ ...endpoint, id: 'ep_o', ownerId: 'bot_b' }),
    ],
    [
      'one that nobody serves',
      (endpoint) => ({
        ...endpoint,
        id: 'ep_o',
        type: 'cloud',
        protocol: 'http',
        trafficPolicy: '{}',
        description: '',
        updatedAt: 0,
        traffic: new EndpointTraffic(),
      }),
    ],
  ]
  it.each(successors)('does not go past a policy to %s', async (_what, make) => {
    const { judged, policy } = noting()
    const { device, site, visit, read } = await startHandSite({ policy })
    const client = await visit(request())
    await lose(site)
    site.registry.add(make({ ...site.endpoint, streams: site.plain.streams }))
    expect(await read(client)).toContain(LOST)
    expect(device.streams).toHaveLength(1)
    expect(judged).toEqual(['request', 'ended undefined'])
  })

  it('waits on beside an endpoint of another protocol, which is another address', async () => {
    const { device, site, visit } = await startHandSite()
    await visit(request())
    await lose(site)
    const { streams } = site.plain
    site.registry.add({ ...site.endpoint, id: 'ep_o', protocol: 'https', streams })
    await turns()
    expect(device.streams).toHaveLength(1)
    expect(site.registry.held.size).toBe(1)
    site.registry.add({ ...site.endpoint, id: 'ep_p', streams })
    await turns()
    expect(device.streams).toHaveLength(2)
    expect(site.registry.held.size).toBe(0)
  })

  it('is answered where its name is gone, or still that of the lost session', async () => {
    for (const isRemoved of [true, false]) {
      const { device, site, visit, read } = await startHandSite()
      const client = await visit(request())
      if (isRemoved) site.registry.remove(site.endpoint)
      site.endpoint.streams.cut()
      expect(await read(client)).toContain(LOST)
      expect(device.streams).toHaveLength(1)
    }
  })
})
