import { describe, expect, it } from 'vitest'
import { systemClock } from '../../../src/base/clock.ts'
import {
  type CloudEndpoint,
  type Endpoint,
  EndpointTraffic,
} from '../../../src/gateway/endpoints/endpoint.ts'
import { policyReach } from '../../../src/gateway/endpoints/endpoint-policies.ts'
import { IpPolicyRanges } from '../../../src/gateway/resources/ip-policies/ip-policy-ranges.ts'
import { compilePolicy } from '../../../src/policy/policy.ts'
import { eventually } from '../../helpers/eventually.ts'
import { openGatewayStores } from '../../helpers/gateway-stores.ts'
import { startIngressSite } from '../../helpers/ingress-site.ts'
import { publicRequest } from '../../helpers/public-request.ts'
import { RawClient, startRawService, startScriptedService } from '../../helpers/raw-http.ts'

const OK = 'HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok'

interface Action {
  readonly type: string
  readonly config?: object
}
interface Rule {
  readonly expressions?: readonly string[]
  readonly actions: readonly Action[]
}

const ask = (url: string, more: object = {}): Action => ({
  type: 'http-request',
  config: { url, timeout: '5s', ...more },
})
const answer = (body: string): Action => ({ type: 'custom-response', config: { body } })
const ASKED = 'actions.ngrok.http_request'
/** What the last http-request has brought, as an answer to the visitor. */
const TELL = answer(
  `\${has(${ASKED}.res) ? string(${ASKED}.res.status_code) + ' ' + ${ASKED}.res.body : ''}\${${ASKED}.error.code}`,
)

/** An ingress whose policies reach what those of a gateway do, and loopback. */
async function startSite(service: number) {
  const site = await startIngressSite({ service })
  const { registry, ingress, captured } = site
  const stores = openGatewayStores()
  const reach = policyReach({
    ...stores,
    ranges: new IpPolicyRanges(stores),
    registry,
    ingress,
    outboundAllow: [],
  })({ ownerId: null, credentialId: null, host: 'asks.example.com' })
  const policyOf = (rules: readonly Rule[]) =>
    compilePolicy(
      { on_http_request: rules },
      {
        ...reach,
        mayDial: ({ address }) => address === '127.0.0.1',
        clock: systemClock,
        log: captured.log,
      },
    )
  const { http } = site.addresses
  const openCloud = (host: string, ...rules: Rule[]): CloudEndpoint => {
    const endpoint: CloudEndpoint = {
      type: 'cloud',
      id: `ep_${host}`,
      url: `https://${host}`,
      host,
      ownerId: null,
      protocol: 'https',
      trafficPolicy: '',
      policy: policyOf(rules),
      metadata: '',
      description: '',
      openedAt: 0,
      updatedAt: 0,
      traffic: new EndpointTraffic(),
    }
    registry.add(endpoint)
    return endpoint
  }
  const openDevice = (host: string, ...rules: Rule[]) => {
    const protocol = host.endsWith('.internal') ? 'https' : 'http'
    return site.bind(host, protocol, policyOf(rules))
  }
  const visit = (host: string, headers: Record<string, string> = {}) =>
    publicRequest({ ingress: `http://127.0.0.1:${http.port}`, host, path: '/p?q', headers })
  /** Where a visitor finds `host`, through the front door. */
  const publicUrl = (host: string) => ({
    url: `http://127.0.0.1:${http.port}/`,
    headers: { host },
  })
  return { ...site, openCloud, openDevice, visit, publicUrl }
}

const requestsOf = (...endpoints: readonly Endpoint[]) =>
  endpoints.reduce((sum, { traffic }) => sum + traffic.requests, 0)

describe('http-request to an internal endpoint', () => {
  it('computes on the account of the visitor who asked', async () => {
    const service = await startScriptedService(OK)
    const { openCloud, openDevice, visit } = await startSite(service.port)
    const costly = Array(4).fill('lists.range(500).map(x, x * x).size() > 0')
    openCloud('front.test', {
      expressions: costly,
      actions: [ask('https://cam.internal/'), TELL],
    })
    openCloud('calm.test', { actions: [ask('https://cam.internal/'), TELL] })
    const device = openDevice('cam.internal', {
      expressions: costly,
      actions: [{ type: 'add-headers', config: { headers: { 'x-a': 'b' } } }],
    })
    expect((await visit('calm.test')).text).toBe('200 ok')
    expect(device.traffic.overBudget).toBe(0)
    const { status, text } = await visit('front.test')
    expect([status, text]).toEqual([500, expect.stringContaining('takes too long')])
    expect(device.traffic.overBudget).toBe(1)
  })

  it('is asked no more often than one request can pay for, by all who ask each other', async () => {
    const service = await startScriptedService(OK)
    const { openCloud, openDevice, visit } = await startSite(service.port)
    const asks = (url: string) => ({ actions: Array.from({ length: 20 }, () => ask(url)) })
    openCloud('front.test', asks('https://middle.internal/'))
    openCloud('middle.internal', asks('https://cam.internal/'))
    const device = openDevice('cam.internal')
    expect((await visit('front.test')).status).toBe(500)
    expect(device.traffic.requests).toBeLessThan(66)
  })

  it("runs the endpoint's policy, for the visitor who asked", async () => {
    const service = await startScriptedService(OK)
    const { openCloud, openDevice, visit } = await startSite(service.port)
    openCloud('front.test', { actions: [ask('https://cam.internal/tier?x=1'), TELL] })
    const device = openDevice('cam.internal', {
      actions: [
        {
          type: 'add-headers',
          config: { headers: { 'x-seen': `\${conn.client_ip} \${req.host}` } },
        },
      ],
    })
    const { text } = await visit('front.test')
    expect(text).toBe('200 ok')
    const [head = ''] = service.requests
    expect(head).toMatch(/^GET \/tier\?x=1 HTTP\/1\.1\r\n/)
    expect(head.match(/^x-forwarded-for: .*$/gim)).toEqual(['x-forwarded-for: 127.0.0.1'])
    expect(head).toContain('x-forwarded-proto: https\r\nx-forwarded-host: cam.internal\r\n')
    expect(head).toContain('x-seen: 127.0.0.1 cam.internal')
    expect(head).not.toMatch(/x-policy-hops/i)
    expect(device.traffic).toMatchObject({ requests: 1, refused: 0 })
    await eventually(() => expect(device.traffic.active).toBe(0))
  })

  it('shows the endpoint the connection of the visitor, with its TLS', async () => {
    const { openCloud, addresses, caPem } = await startSite(1)
    openCloud('check.internal', { actions: [answer(`\${conn.tls.version} \${conn.client_port}`)] })
    openCloud('front.test', {
      actions: [ask('https://check.internal/'), answer(`<\${${ASKED}.res.body}>`)],
    })
    const client = RawClient.connectTls(addresses.https.port, caPem)
    client.send('GET / HTTP/1.1\r\nHost: front.test\r\n\r\n')
    const text = await client.receive('>')
    expect(text).toContain(`<1.3 ${client.socket.localPort}>`)
  })

  it("is refused by the endpoint's policy", async () => {
    const service = await startScriptedService(OK)
    const { openCloud, openDevice, visit } = await startSite(service.port)
    openCloud('front.test', { actions: [ask('https://cam.internal/'), TELL] })
    const device = openDevice('cam.internal', {
      expressions: ["conn.client_ip == '127.0.0.1'"],
      actions: [{ type: 'deny', config: { status_code: 418 } }],
    })
    expect((await visit('front.test')).text).toBe('418 ')
    expect(service.requests).toEqual([])
    expect(device.traffic).toMatchObject({ requests: 1, refused: 1 })
  })

  it('asks a cloud endpoint, with whatever body and size', async () => {
    const { openCloud, visit } = await startSite(1)
    const body = 'x'.repeat(200_000)
    const asked = ask('https://check.internal/', { method: 'POST', body: 'y'.repeat(60_000) })
    openCloud('front.test', {
      actions: [asked, answer(`\${${ASKED}.res.body.size()} \${${ASKED}.res.header['x-n'][0]}`)],
    })
    openCloud('check.internal', {
      actions: [
        {
          type: 'custom-response',
          config: { body: body.slice(0, 60_000), headers: { 'x-n': `\${req.content_length}` } },
        },
      ],
    })
    expect((await visit('front.test')).text).toBe('60000 60000')
  })

  it('says that nobody is there', async () => {
    const { openCloud, visit } = await startSite(1)
    openCloud('front.test', { actions: [ask('https://cam.internal/'), TELL] })
    expect((await visit('front.test')).text).toBe('ERR_NGROK_3200')
    // The protocol is part of the address.
    openCloud('cam.internal', { actions: [answer('found')] })
    openCloud('other.test', { actions: [ask('http://cam.internal/'), TELL] })
    expect((await visit('front.test')).text).toBe('200 found')
    expect((await visit('other.test')).text).toBe('ERR_NGROK_3200')
  })

  it('is nothing that a visitor can reach', async () => {
    const { openCloud, visit } = await startSite(1)
    openCloud('cam.internal', { actions: [answer('found')] })
    expect((await visit('cam.internal')).status).toBe(404)
  })

  it('lets go of the device when its time is up', async () => {
    const silent = await startRawService(() => {})
    const { openCloud, openDevice, visit } = await startSite(silent)
    const slow = ask('https://cam.internal/', { timeout: '1s' })
    openCloud('front.test', { actions: [slow, TELL] })
    const device = openDevice('cam.internal')
    expect((await visit('front.test')).text).toBe('ERR_NGROK_3602')
    await eventually(() => expect(device.traffic).toMatchObject({ requests: 1, active: 0 }))
  })
})

describe('policies that ask each other', () => {
  it('are not stopped by what a visitor writes', async () => {
    const service = await startScriptedService(OK)
    const { openCloud, openDevice, visit, ingress } = await startSite(service.port)
    openCloud('check.internal', { actions: [{ type: 'deny' }] })
    openDevice(
      'guarded.test',
      { actions: [ask('https://check.internal/')] },
      {
        expressions: [`${ASKED}.error.code == '' && ${ASKED}.res.status_code == 403`],
        actions: [{ type: 'deny' }],
      },
    )
    // Those of another process: each gateway has a key of its own.
    const forged = ingress.sealDepth(3).replace(/.$/, (last) => (last === 'A' ? 'B' : 'A'))
    for (const value of [
      '4',
      '3',
      '-1',
      '1e3',
      '99',
      'x',
      forged,
      forged.replace(/\.[^.]*$/, ''),
    ]) {
      expect((await visit('guarded.test', { 'X-Policy-Hops': value })).status, value).toBe(403)
    }
    expect(service.requests).toEqual([])
  })

  it('never pass the header on to a device', async () => {
    const service = await startScriptedService(OK)
    const { openDevice, visit } = await startSite(service.port)
    openDevice('plain.test', { actions: [{ type: 'log', config: { metadata: {} } }] })
    expect((await visit('plain.test', { 'X-Policy-Hops': '4' })).status).toBe(200)
    expect(service.requests[0]).not.toMatch(/x-policy-hops/i)
  })

  it.each(['public', 'internal'])('in a circle of %s endpoints end', async (kind) => {
    const service = await startScriptedService(OK)
    const { openDevice, visit, publicUrl } = await startSite(service.port)
    const inner = kind === 'public' ? 'inner.test' : 'inner.internal'
    const target = kind === 'public' ? publicUrl(inner) : { url: `https://${inner}/` }
    const again = ask(target.url, { ...target, retry_condition: 'false' })
    const front = openDevice('front.test', { actions: [again, TELL] })
    const asked = openDevice(inner, { actions: [again, TELL] })
    const { status, text } = await visit('front.test')
    expect(status).toBe(200)
    expect(text).toMatch(/^200 200 508 .*ERR_NGROK_3603/s)
    expect([requestsOf(front), requestsOf(asked)]).toEqual([1, 3])
    expect(service.requests).toEqual([])
  })

  it('cannot set the count back, nor lead past a guard', async () => {
    const service = await startScriptedService(OK)
    const { openCloud, openDevice, visit, publicUrl } = await startSite(service.port)
    const { url, headers } = publicUrl('chain.test')
    // Its own author would have it endless.
    const endless = ask(url, { headers: { ...headers, 'x-policy-hops': '0' } })
    const chain = openCloud('chain.test', { actions: [endless, TELL] })
    expect((await visit('chain.test')).text).toContain('508')
    expect(requestsOf(chain)).toBe(4)
    // Where nobody may ask any more the guard of the last one refuses.
    openDevice(
      'guarded.test',
      { actions: [ask('https://check.internal/', { on_error: 'continue' })] },
      {
        expressions: [`${ASKED}.error.code == '' && ${ASKED}.res.status_code == 403`],
        actions: [{ type: 'deny' }],
      },
    )
    const guarded = publicUrl('guarded.test')
    openCloud('d.internal', { actions: [ask(guarded.url, guarded), TELL] })
    openCloud('c.internal', { actions: [ask('https://d.internal/'), TELL] })
    openCloud('front.test', { actions: [ask('https://c.internal/'), TELL] })
    expect((await visit('front.test')).text).toMatch(/^200 200 508 /)
    expect(service.requests).toEqual([])
  })

  it('and hand requests on in between, end too', async () => {
    const { openCloud, visit } = await startSite(1)
    const toB = { type: 'forward-internal', config: { url: 'https://b.internal' } }
    const toA = ask('https://a.internal/')
    openCloud('front.test', { actions: [toA, TELL] })
    const a = openCloud('a.internal', { actions: [toB] })
    const b = openCloud('b.internal', { actions: [toA, TELL] })
    expect((await visit('front.test')).text).toMatch(/^200 200 508 /)
    expect([requestsOf(a), requestsOf(b)]).toEqual([3, 3])
  })
})
