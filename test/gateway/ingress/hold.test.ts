import { describe, expect, it } from 'vitest'
import type { AgentEndpoint } from '../../../src/gateway/endpoints/endpoint.ts'
import type { StreamSlots } from '../../../src/gateway/streams/stream-slots.ts'
import { CONTINUE, type Outcome } from '../../../src/policy/exchange/outcome.ts'
import { eventually } from '../../helpers/eventually.ts'
import {
  type IngressSite,
  type IngressSiteOptions,
  startIngressSite,
} from '../../helpers/ingress-site.ts'
import { ManualClock } from '../../helpers/manual-clock.ts'
import { RawClient, startRawService, startScriptedService } from '../../helpers/raw-http.ts'

const CREDENTIAL = 'cr_a'
const OK = 'HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok'
const request = (method = 'GET', host = 'a.test', more = '') =>
  `${method} / HTTP/1.1\r\nHost: ${host}\r\n${more}\r\n`

async function startSite(options: Partial<IngressSiteOptions> = {}) {
  const clock = new ManualClock()
  const service = await startScriptedService(OK)
  const site = await startIngressSite({ service: service.port, clock, ...options })
  return { site, clock, service }
}

/** As an agent session does it when it ends: its names are away, its streams are gone. */
async function loseDevice(site: IngressSite, endpoint = site.endpoint): Promise<void> {
  void site.session.closed.then(() => {
    site.registry.suspend(endpoint, { credentialId: CREDENTIAL })
    endpoint.streams.close()
  })
  await site.session.goAway(0, 'gone')
  await eventually(() => expect(site.registry.size).toBe(0))
}

function visit(site: IngressSite, text = request()): RawClient {
  const client = RawClient.connect(site.addresses.http.port)
  client.send(text)
  return client
}

const isHeld = (site: IngressSite, count: number) =>
  eventually(() => expect(site.registry.held.size).toBe(count))

describe('a name whose device is away', () => {
  it.each([
    ['a GET', request()],
    ['a POST with its body', request('POST', 'a.test', 'Content-Length: 5\r\n').concat('hello')],
    ['a request over HTTP/1.0', 'GET / HTTP/1.0\r\nHost: a.test\r\n\r\n'],
  ])('lets %s wait, and serves it when the device is back', async (_what, text) => {
    const { site, service } = await startSite()
    await loseDevice(site)
    const client = visit(site, text)
    await isHeld(site, 1)
    expect(service.requests).toEqual([])
    const endpoint = site.bind('a.test', 'https', {}, await site.reconnect())
    expect(await client.receive('ok')).toMatch(/^HTTP\/1\.1 200 OK/)
    expect(service.requests).toHaveLength(1)
    expect(endpoint.traffic).toMatchObject({ requests: 1, refused: 0 })
    expect(site.registry.held).toMatchObject({ size: 0, bytes: 0, clients: 0 })
  })

  it('answers 503 with a code of its own when the device stays away, and goes on doing so', async () => {
    const { site, clock } = await startSite()
    await loseDevice(site)
    const client = visit(site)
    await isHeld(site, 1)
    await clock.advance(9_000)
    expect(site.registry.held.size).toBe(1)
    await clock.advance(2_000)
    const text = await client.receive('ERR_GATEWAY_AWAY)')
    expect(text).toMatch(/^HTTP\/1\.1 503 /)
    expect(text).toContain('retry-after: 5\r\n')
    await clock.advance(3_500_000)
    expect(await visit(site).receive('ERR_')).toContain('ERR_GATEWAY_AWAY')
    await clock.advance(100_000)
    expect(await visit(site).receive('ERR_')).toMatch(/^HTTP\/1\.1 404 .*ERR_NGROK_3200/s)
  })

  it('counts the time from when the device was lost', async () => {
    const { site, clock } = await startSite()
    await loseDevice(site)
    await clock.advance(9_500)
    const late = visit(site)
    await isHeld(site, 1)
    await clock.advance(2_000)
    expect(await late.receive('ERR_')).toContain('ERR_GATEWAY_AWAY')
  })

  it('lets nobody wait where that is switched off', async () => {
    const { site } = await startSite({ registry: { holdMs: 0 } })
    await loseDevice(site)
    expect(await visit(site).receive('ERR_')).toContain('ERR_GATEWAY_AWAY')
  })

  it('is nobody’s at once when it was given up', async () => {
    const { site } = await startSite()
    site.registry.remove(site.endpoint)
    expect(await visit(site).receive('ERR_')).toMatch(/^HTTP\/1\.1 404 .*ERR_NGROK_3200/s)
  })

  it('tells those who wait when it is forgotten', async () => {
    const { site } = await startSite()
    await loseDevice(site)
    const client = visit(site)
    await isHeld(site, 1)
    site.registry.forgetUnless(({ credentialId }) => credentialId !== CREDENTIAL)
    expect(await client.receive('ERR_')).toContain('ERR_NGROK_3200')
  })

  it('is held behind a wildcard above it, which serves it afterwards', async () => {
    const { site, clock } = await startSite()
    const wildcard = site.bind('*.test', 'https', {}, await site.reconnect())
    void site.session.closed.then(() =>
      site.registry.suspend(site.endpoint, { credentialId: CREDENTIAL }),
    )
    await site.session.goAway(0, 'gone')
    const client = visit(site)
    await isHeld(site, 1)
    await clock.advance(11_000)
    await client.receive('ok')
    expect(wildcard.traffic.requests).toBe(1)
  })

  it('is held as a wildcard, too, for each name below it', async () => {
    const { site } = await startSite()
    const wildcard = site.bind('*.b.test')
    void site.session.closed.then(() =>
      site.registry.suspend(wildcard, { credentialId: CREDENTIAL }),
    )
    await site.session.goAway(0, 'gone')
    const client = visit(site, request('GET', 'x.b.test'))
    await isHeld(site, 1)
    site.bind('*.b.test', 'https', {}, await site.reconnect())
    await client.receive('ok')
  })

  it('lets no more wait than there are places, and leaves some for others', async () => {
    const { site } = await startSite({ registry: { held: { requests: 4 } } })
    await loseDevice(site)
    const clients = [visit(site), visit(site)]
    await isHeld(site, 2)
    // One client gets half of the places.
    expect(await visit(site).receive('ERR_')).toContain('ERR_GATEWAY_AWAY')
    for (const client of clients) client.socket.destroy()
    await isHeld(site, 0)
    expect(site.registry.held).toMatchObject({ bytes: 0, clients: 0 })
  })

  it('keeps no more of a body than a piece while it waits', async () => {
    const { site } = await startSite()
    await loseDevice(site)
    const client = visit(site, request('POST', 'a.test', 'Content-Length: 50000000\r\n'))
    await isHeld(site, 1)
    client.socket.write(Buffer.alloc(20_000_000))
    await eventually(() => expect(client.socket.writableLength).toBeGreaterThan(0))
    expect(client.socket.bytesWritten - client.socket.writableLength).toBeLessThan(19_000_000)
  })
})

describe('a request whose device is lost under it', () => {
  /** A device that takes requests and never answers; `onRequest` hears of each. */
  async function startSilentSite(policy: IngressSiteOptions['policy'] = {}, answer = '') {
    const heard: string[] = []
    const port = await startRawService((socket) => {
      socket.on('data', (chunk: Buffer) => {
        heard.push(String(chunk))
        socket.write(heard.length === 1 ? answer : OK)
      })
      socket.on('end', () => socket.end())
    })
    const site = await startIngressSite({ service: port, policy })
    const comeBack = async (slots?: StreamSlots): Promise<AgentEndpoint> =>
      site.bind('a.test', 'https', policy, slots ?? (await site.reconnect()))
    return { site, heard, comeBack }
  }

  it.each(['GET', 'HEAD', 'OPTIONS'])('goes out again when it is a %s', async (method) => {
    const { site, heard, comeBack } = await startSilentSite()
    const client = visit(site, request(method))
    await eventually(() => expect(heard).toHaveLength(1))
    await loseDevice(site)
    await isHeld(site, 1)
    const endpoint = await comeBack()
    await client.receive('HTTP/1.1 200 OK')
    expect(heard).toHaveLength(2)
    // It counts once: where it was served.
    expect(site.endpoint.traffic).toMatchObject({ requests: 0, active: 0, refused: 0 })
    expect(endpoint.traffic).toMatchObject({ requests: 1, refused: 0 })
  })

  it.each([
    ['a POST', request('POST'), ''],
    ['a PUT', request('PUT'), ''],
    ['a GET with a body', request('GET', 'a.test', 'Content-Length: 2\r\n').concat('hi'), ''],
    ['one of which the visitor has heard', request(), 'HTTP/1.1 103 Early Hints\r\n\r\n'],
  ])('does not when it is %s', async (_what, text, answer) => {
    const { site, heard } = await startSilentSite({}, answer)
    const client = visit(site, text)
    await eventually(() => expect(heard.length).toBeGreaterThan(0))
    if (answer) await client.receive('103')
    await loseDevice(site)
    expect(await client.receive('ERR_NGROK')).toContain('ERR_NGROK_3210')
    expect(site.registry.held.size).toBe(0)
  })

  it('goes out again twice at most, when the device may have seen it', async () => {
    const { site, heard, comeBack } = await startSilentSite()
    const client = visit(site)
    await eventually(() => expect(heard).toHaveLength(1))
    await loseDevice(site)
    for (let loss = 2; loss <= 3; loss += 1) {
      await isHeld(site, 1)
      // It is silent again.
      heard.length = 0
      const slots = await site.reconnect()
      const endpoint = await comeBack(slots)
      await eventually(() => expect(heard).toHaveLength(1))
      void slots.session.closed.then(() =>
        site.registry.suspend(endpoint, { credentialId: CREDENTIAL }),
      )
      await slots.session.goAway(0, 'gone again')
    }
    expect(await client.receive('ERR_NGROK')).toContain('ERR_NGROK_3210')
  })

  it('goes out again below a policy, which has judged it once', async () => {
    const judged: string[] = []
    const policy: IngressSiteOptions['policy'] = {
      hasConnectRules: false,
      hasRequestRules: true,
      hasResponseRules: true,
      onHttpRequest: (): Outcome => {
        judged.push('request')
        return CONTINUE
      },
      onHttpResponse: (): Outcome => {
        judged.push('response')
        return CONTINUE
      },
    }
    const { site, heard, comeBack } = await startSilentSite(policy)
    const client = visit(site)
    await eventually(() => expect(heard).toHaveLength(1))
    await loseDevice(site)
    await isHeld(site, 1)
    const endpoint = await comeBack()
    await client.receive('ok')
    expect(judged).toEqual(['request', 'response'])
    expect(endpoint.traffic.requests).toBe(1)
  })

  it('is not sent past a policy to a name of another account', async () => {
    const policy: IngressSiteOptions['policy'] = {
      hasConnectRules: false,
      hasRequestRules: true,
      hasResponseRules: false,
      onHttpRequest: (): Outcome => CONTINUE,
    }
    const { site, heard } = await startSilentSite(policy)
    const client = visit(site)
    await eventually(() => expect(heard).toHaveLength(1))
    await loseDevice(site)
    await isHeld(site, 1)
    const { endpoint } = site
    site.registry.add({ ...endpoint, id: 'ep_other', ownerId: 'bot_b' })
    expect(await client.receive('ERR_NGROK')).toContain('ERR_NGROK_3210')
    expect(heard).toHaveLength(1)
  })

  it('follows its name at once when something else has taken that over', async () => {
    const { site, heard } = await startSilentSite()
    // All streams are taken: the second one waits for one of them.
    const { slots, registry } = site
    const clients = [visit(site)]
    await eventually(() => expect(heard).toHaveLength(1))
    const next = site.bind('b.test', 'https', {}, await site.reconnect())
    registry.remove(next)
    const after = { ...next, host: 'a.test', url: site.endpoint.url }
    registry.replace(site.endpoint, after)
    site.endpoint.streams.close()
    slots.close()
    clients.push(visit(site))
    await clients[1]?.receive('ok')
    await site.session.goAway(0, 'over')
    await clients[0]?.receive('ok')
  })
})
