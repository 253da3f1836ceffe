import { describe, expect, it } from 'vitest'
import { type AgentEndpoint, EndpointTraffic } from '../../../src/gateway/endpoints/endpoint.ts'
import { CONTINUE, type Outcome } from '../../../src/policy/exchange/outcome.ts'
import type { CompiledPolicy } from '../../../src/policy/policy.ts'
import { turns } from '../../helpers/frame-peer.ts'
import type { MemorySite } from '../../helpers/memory-site.ts'
import { startHandSite } from './hand-device.ts'

const HOST = 'pool.test'
const OK = 'HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok'
const request = (method = 'GET', more = '') =>
  `${method} / HTTP/1.1\r\nHost: ${HOST}\r\n${more}\r\n`

/** One member of the pool; `judge` stands for its policy. */
function join(site: MemorySite, poolMember: string, judge?: () => Outcome, host = HOST) {
  const judged: string[] = []
  const policy: Partial<CompiledPolicy> = judge
    ? {
        hasRequestRules: true,
        onHttpRequest: (exchange) => {
          judged.push('request')
          exchange.whenUpstreamEnds((status) => judged.push(`ended ${status}`))
          return judge()
        },
      }
    : {}
  const plain = site.bind(`${poolMember}.${host}`, policy)
  site.registry.remove(plain)
  const endpoint: AgentEndpoint = { ...plain, host, poolMember, traffic: new EndpointTraffic() }
  site.registry.add(endpoint)
  return { endpoint, judged }
}

async function lose(site: MemorySite, endpoint: AgentEndpoint): Promise<void> {
  site.registry.suspend(endpoint, { credentialId: 'cr_a' })
  endpoint.streams.cut()
  await turns()
}

describe('a request to a pool', () => {
  it('that its member lost goes to another, and counts there alone', async () => {
    const { device, site, visit, read } = await startHandSite()
    const [a, b] = [join(site, 'a').endpoint, join(site, 'b').endpoint]
    const client = await visit(request())
    await lose(site, a)
    expect(device.streams).toHaveLength(2)
    device.last.send(OK)
    expect(await read(client)).toBe(OK)
    expect(a.traffic).toMatchObject({ requests: 0, active: 0, refused: 0 })
    expect(b.traffic).toMatchObject({ requests: 1, active: 0, refused: 0 })
  })

  it('is judged by the policy of the member that serves it', async () => {
    const { device, site, visit, read } = await startHandSite()
    const a = join(site, 'a', () => CONTINUE)
    const b = join(site, 'b', () => CONTINUE)
    const client = await visit(request())
    await lose(site, a.endpoint)
    device.last.send(OK)
    expect(await read(client)).toBe(OK)
    expect(a.judged).toEqual(['request', 'ended undefined'])
    expect(b.judged).toEqual(['request', 'ended 200'])
  })

  it('goes from the member to another behind the policy that handed it on', async () => {
    const url = 'http://pool.internal'
    const front = {
      hasRequestRules: true,
      onHttpRequest: () => ({ kind: 'forward', url }) as Outcome,
    }
    const { device, site, visit, read } = await startHandSite({ policy: front })
    const a = join(site, 'a', () => CONTINUE, 'pool.internal')
    const b = join(site, 'b', () => CONTINUE, 'pool.internal')
    const client = await visit(request().replace(HOST, 'a.test'))
    await lose(site, a.endpoint)
    device.last.send(OK)
    expect(await read(client)).toBe(OK)
    expect([a.judged, b.judged]).toEqual([
      ['request', 'ended undefined'],
      ['request', 'ended 200'],
    ])
    for (const { traffic } of [site.endpoint, b.endpoint]) {
      expect(traffic).toMatchObject({ requests: 1, active: 0 })
    }
    expect(a.endpoint.traffic).toMatchObject({ requests: 0, active: 0 })
  })

  it('that may have done something is not sent again', async () => {
    const { device, site, visit, read } = await startHandSite()
    const a = join(site, 'a').endpoint
    join(site, 'b')
    const client = await visit(request('POST', 'Content-Length: 2\r\n').concat('hi'))
    await lose(site, a)
    expect(device.streams).toHaveLength(1)
    expect(await read(client)).toContain('ERR_NGROK_3210')
  })

  it.each<[string, (() => Outcome) | undefined]>([
    ['with rules', () => CONTINUE],
    ['without', undefined],
  ])('has no cookies of a log-in at any member, one %s', async (_, judge) => {
    const { device, site, visit } = await startHandSite()
    join(site, 'a', judge)
    await visit(request('GET', 'Cookie: lang=de; __Host-session.0123456789ab=secret\r\n'))
    expect(device.last.text).toContain('lang=de')
    expect(device.last.text).not.toContain('secret')
  })

  it('goes to the least busy member', async () => {
    const { device, site, visit } = await startHandSite()
    const [a, b] = [join(site, 'a').endpoint, join(site, 'b').endpoint]
    for (let index = 0; index < 6; index += 1) await visit(request())
    expect([a.traffic.active, b.traffic.active]).toEqual([3, 3])
    device.streams[0]?.send(OK)
    device.streams[2]?.send(OK)
    await turns()
    expect([a.traffic.active, b.traffic.active]).toEqual([1, 3])
    await visit(request())
    await visit(request())
    expect([a.traffic.active, b.traffic.active]).toEqual([3, 3])
  })
})
