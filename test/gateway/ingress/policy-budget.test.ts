import { describe, expect, it } from 'vitest'
import { systemClock } from '../../../src/base/clock.ts'
import { FairScheduler } from '../../../src/policy/limit/fair-scheduler.ts'
import { compilePolicy } from '../../../src/policy/policy.ts'
import { captureLog } from '../../helpers/captured-log.ts'
import { startIngressSite } from '../../helpers/ingress-site.ts'
import { askedBomb } from '../../helpers/policy-bombs.ts'
import { RawClient, startScriptedService } from '../../helpers/raw-http.ts'

const OK = 'HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok'
/** As many items as one request can pay for once, and not twice. */
const MOST = Array(4).fill('lists.range(500).map(x, x * x).size() > 0')

const lane = new FairScheduler()
const policyOf = (source: unknown) =>
  compilePolicy(source, {
    clock: systemClock,
    log: captureLog('silent').log,
    hasInternal: () => true,
    lane,
  })

const get = (host: string, field = 'x-n: 1') =>
  `GET / HTTP/1.1\r\nHost: ${host}\r\n${field}\r\n\r\n`

async function siteWith(source: unknown) {
  const service = await startScriptedService(OK)
  const site = await startIngressSite({ service: service.port, policy: policyOf(source) })
  return { site }
}

const costly = (type: string, config?: object) => ({
  expressions: MOST,
  actions: [{ type, ...(config && { config }) }],
})
const mark = costly('add-headers', { headers: { 'x-a': 'b' } })

describe('the budget of a request', () => {
  it('is one for the phases of a policy, and its owner is told', async () => {
    const { site } = await siteWith({ on_http_request: [mark], on_http_response: [mark] })
    const client = RawClient.connect(site.addresses.http.port)
    client.send(get('a.test'))
    const answer = await client.receive('ERR_NGROK_2254)\n')
    expect(answer).toMatch(/^HTTP\/1\.1 500 /)
    expect(answer).toContain('The traffic policy of this endpoint takes too long for one request.')
    expect(site.endpoint.traffic).toMatchObject({ requests: 1, refused: 1, overBudget: 1 })
  })

  it('is enough for one of them', async () => {
    const { site } = await siteWith({ on_http_request: [mark] })
    const client = RawClient.connect(site.addresses.http.port)
    client.send(get('a.test'))
    expect(await client.receive('ok')).toMatch(/^HTTP\/1\.1 200 /)
    expect(site.endpoint.traffic).toMatchObject({ requests: 1, refused: 0, overBudget: 0 })
  })

  it('goes along when a request is handed on; the policy that needs more is told', async () => {
    const { site } = await siteWith({
      on_http_request: [costly('forward-internal', { url: 'https://b.internal' })],
    })
    const inner = site.bind('b.internal', 'https', policyOf({ on_http_request: [mark] }))
    const client = RawClient.connect(site.addresses.http.port)
    client.send(get('a.test'))
    expect(await client.receive('ERR_NGROK_2254)\n')).toMatch(/^HTTP\/1\.1 500 /)
    expect(inner.traffic).toMatchObject({ overBudget: 1 })
    expect(site.endpoint.traffic).toMatchObject({ overBudget: 0 })
  })

  it('is that of the connect phase, too', async () => {
    const { site } = await siteWith({
      on_tcp_connect: [costly('log', { metadata: {} })],
      on_http_request: [mark],
    })
    const client = RawClient.connect(site.addresses.http.port)
    client.send(get('a.test'))
    expect(await client.receive('ERR_NGROK_2254)\n')).toMatch(/^HTTP\/1\.1 500 /)
    // Let in, the connection is not judged again.
    client.send(get('a.test'))
    expect(await client.receive('HTTP/1.1 200 ')).toContain('HTTP/1.1 500 ')
  })

  it('lets a calm endpoint answer while fifty requests wait for a costly policy', async () => {
    const { site } = await siteWith(askedBomb())
    site.bind('calm.test', 'http', policyOf({ on_http_request: [] }))
    const costlyOnes = Array.from({ length: 50 }, () => {
      const client = RawClient.connect(site.addresses.http.port)
      client.send(get('a.test', 'x-n: 3'))
      return client
    })
    const answered = costlyOnes.map((client) => client.receive('\r\n\r\n'))
    let done = 0
    for (const answer of answered) void answer.then(() => (done += 1))
    await answered[0]
    const calm = RawClient.connect(site.addresses.http.port)
    calm.send(get('calm.test'))
    await calm.receive('ok')
    expect(done).toBeLessThan(40)
    await Promise.all(answered)
    expect(site.endpoint.traffic.requests).toBe(50)
  })
})
