import { once } from 'node:events'
import { type AddressInfo, createServer } from 'node:net'
import { join } from 'node:path'
import { describe, expect, it, onTestFinished } from 'vitest'
import { DEFAULT_TIMINGS } from '../../src/agent/timings.ts'
import { TunnelStatusView } from '../../src/api/tunnel-view.ts'
import { tunnelRoutes } from '../../src/api/tunnels.ts'
import { tunnelTable } from '../../src/cli/local/status-text.ts'
import { mountRoutes } from '../../src/http/routes.ts'
import { agentOnFake } from '../helpers/agent-on-fake.ts'
import { eventually } from '../helpers/eventually.ts'
import { appWith, sendRequest, serveHttp } from '../helpers/serve-http.ts'
import { temporaryFolder } from '../helpers/temporary-folder.ts'
import { DEFAULT_POLICY, startApi } from './started-api.ts'

const DOMAIN = 'device1.site.test'
const SPEC = { protocol: 'http', forwards_to: 'localhost:8001', domain: DOMAIN }
const VIEW = { url: `https://${DOMAIN}:8443`, ...SPEC, policy: null }
const OWN_POLICY = { on_http_request: [], on_http_response: [] }

describe('/tunnels before what is stored was read', () => {
  it.each([
    ['GET', '/tunnels'],
    ['PUT', '/tunnels'],
    ['POST', '/tunnels'],
    ['GET', `/tunnels/${DOMAIN}`],
    ['PUT', `/tunnels/${DOMAIN}`],
    ['DELETE', `/tunnels/${DOMAIN}`],
    ['GET', `/tunnels/${DOMAIN}/inspect`],
  ])('answers %s %s with 503 and when to ask again', async (method, path) => {
    const { agent } = await agentOnFake()
    const { at } = await serveHttp(appWith((app) => app.use(mountRoutes(tunnelRoutes(agent)))))
    const { status, headers, json } = await sendRequest(at, { method, path })
    expect([status, headers['retry-after'], json.code]).toEqual([503, '1', 'starting'])
  })
})

describe('POST /tunnels', () => {
  it('answers 200 with the five fields, the policy as it was sent or null', async () => {
    const { call, service } = await startApi()
    const plain = await call('POST', '/tunnels', SPEC)
    expect([plain.status, plain.json]).toEqual([200, VIEW])
    const other = { ...SPEC, domain: 'device2.site.test', policy: OWN_POLICY }
    const own = await call('POST', '/tunnels', other)
    expect([own.status, own.json]).toEqual([
      200,
      { url: 'https://device2.site.test:8443', ...other },
    ])
    expect(service.online).toEqual([DOMAIN, 'device2.site.test'])
  })

  it.each([
    ['8001', 'localhost:8001'],
    [':8001', 'localhost:8001'],
    ['LOCALHOST:8001', 'localhost:8001'],
    ['127.0.0.1:80', '127.0.0.1:80'],
    ['[::1]:8001', '[::1]:8001'],
  ])('takes forwards_to %s for %s', async (forwards_to, normal) => {
    const { call } = await startApi()
    const { status, json } = await call('POST', '/tunnels', { ...SPEC, forwards_to })
    expect([status, json.forwards_to]).toEqual([200, normal])
  })

  it('takes a Unix socket and an upstream of TLS as they are written, where they are allowed', async () => {
    const path = join(temporaryFolder(), 'app.sock')
    const forward = { allow: [`unix:${path}`], ownAddresses: () => [] }
    const { call } = await startApi({ agent: { forward } })
    for (const forwards_to of [`unix:${path}`, 'https://localhost:8443']) {
      const sent = { ...SPEC, forwards_to }
      const { status, json } = await call('PUT', `/tunnels/${DOMAIN}`, sent)
      expect(status).toBeLessThan(202)
      expect(json.forwards_to).toBe(forwards_to)
      // What a list shows can be sent back.
      const [shown] = (await call('GET', '/tunnels')).json
      const { url: _own, ...again } = shown
      expect((await call('PUT', `/tunnels/${DOMAIN}`, again)).status).toBe(200)
      expect((await call('GET', '/tunnels')).json).toEqual([shown])
    }
    const other = { ...SPEC, forwards_to: `unix:${path}.other` }
    const { status, json } = await call('POST', '/tunnels', { ...other, domain: 'b.site.test' })
    expect([status, json.code]).toEqual([422, 'forwards-to-not-allowed'])
  })

  it('answers 202 while the service is away, and keeps the tunnel', async () => {
    const { call, service } = await startApi()
    service.goAway()
    const { status, json } = await call('POST', '/tunnels', SPEC)
    // Nothing was open yet that would have told the port.
    expect([status, json]).toEqual([202, { ...VIEW, url: `https://${DOMAIN}` }])
    expect((await call('GET', '/tunnels')).json).toHaveLength(1)
  })

  it('answers with the name that the service gives, and with none while it is away', async () => {
    const { call, service } = await startApi()
    const { domain: _none, ...nameless } = SPEC
    const { name, address } = service.connector
    const given = await call('POST', '/tunnels', nameless)
    const view = { ...nameless, url: `https://${name}:8443`, domain: name, policy: null }
    expect([given.status, given.json]).toEqual([200, view])
    expect(given.headers.location).toBe(`/tunnels/${name}`)
    const tcp = await call('POST', '/tunnels', { ...nameless, protocol: 'tcp', domain: '' })
    expect(tcp.headers.location).toBe(`/tunnels/${address}`)
    const again = await call('PUT', '/tunnels', [nameless])
    expect(again.json.tunnels).toMatchObject([
      { action: 'keep', domain: name },
      { action: 'delete', domain: address },
    ])
    service.goAway()
    const { status, json, headers } = await call('POST', '/tunnels', nameless)
    expect([status, json]).toEqual([202, { ...nameless, url: '', domain: '', policy: null }])
    const pending = await call('GET', String(headers.location))
    expect([pending.status, pending.json.url_part]).toEqual([200, pending.json.id])
  })

  it('keeps nothing of a tunnel that the service refused, and says why', async () => {
    const { call, service } = await startApi()
    service.refuse(DOMAIN, 320)
    const { status, json } = await call('POST', '/tunnels', SPEC)
    expect(status).toBe(422)
    expect(json).toMatchObject({ code: 'service-refused', service_code: 'ERR_NGROK_320' })
    expect((await call('GET', '/tunnels')).json).toEqual([])
  })

  it('lets one of two requests for a domain win', async () => {
    const { call } = await startApi()
    const answers = await Promise.all([
      call('POST', '/tunnels', SPEC),
      call('POST', '/tunnels', SPEC),
    ])
    expect(answers.map(({ status }) => status).sort()).toEqual([200, 409])
  })
})

describe('states of services', () => {
  it.each(['/status', '/tunnels'])('are checked again when GET %s asks', async (path) => {
    // Pauses of 1, 2, 4, … ms: without a question, the last check is due after 17 minutes.
    const upstream = { intervalMs: 1, maxIntervalMs: 3_600_000, connectMs: 2_000 }
    const { call } = await startApi({ agent: { timings: { ...DEFAULT_TIMINGS, upstream } } })
    let checks = 0
    const service = createServer((socket) => {
      checks += 1
      socket.on('error', () => {}).end()
    })
    onTestFinished(() => void service.close())
    await once(service.listen(0, '127.0.0.1'), 'listening')
    const { port } = service.address() as AddressInfo
    await call('POST', '/tunnels', { ...SPEC, forwards_to: `127.0.0.1:${port}` })
    for (let seen = 0; seen < 20; seen += 1) {
      await eventually(async () => {
        await call('GET', path)
        expect(checks).toBeGreaterThan(seen)
      })
    }
  })
})

describe('GET /tunnels', () => {
  it('answers an empty array without tunnels', async () => {
    const { status, json } = await (await startApi()).call('GET', '/tunnels')
    expect([status, json]).toEqual([200, []])
  })

  it('takes a policy back as a list shows it, and as people write it', async () => {
    const { call } = await startApi()
    const yaml = 'on_http_request:\n  - actions: [{type: deny}]\n'
    const said = { on_http_request: [{ actions: [{ type: 'deny' }] }] }
    for (const policy of [JSON.stringify(said), yaml, said]) {
      const put = await call('PUT', `/tunnels/${DOMAIN}`, { ...SPEC, policy })
      expect(put.json).toMatchObject({ policy: said })
      const listed = await call('GET', '/tunnels')
      const [shown] = listed.json as { policy: string }[]
      expect(shown?.policy).toBe(JSON.stringify(said))
    }
  })

  it.each([
    'deny',
    '[]',
    '{"on_http_request": [',
    'a: &a [*a]',
    `${'['.repeat(40)}${']'.repeat(40)}`,
    'a: 1\na: 2',
    `a: &a [${'x,'.repeat(50)}]\nb: &b [${'*a,'.repeat(50)}]\nc: [${'*b,'.repeat(50)}]`,
  ])('refuses a text that is no policy: %j', async (policy) => {
    const { call } = await startApi()
    const answer = await call('POST', '/tunnels', { ...SPEC, policy })
    expect(answer).toMatchObject({ status: 400, json: { errors: [{ pointer: '/policy' }] } })
  })

  it('lists oldest first, with the policy in force as JSON text', async () => {
    const { call } = await startApi()
    await call('POST', '/tunnels', SPEC)
    await call('POST', '/tunnels', { ...SPEC, domain: 'a.site.test', policy: OWN_POLICY })
    const { json } = await call('GET', '/tunnels')
    expect(json).toEqual([
      { ...VIEW, policy: JSON.stringify(JSON.parse(DEFAULT_POLICY)) },
      {
        ...VIEW,
        url: 'https://a.site.test:8443',
        domain: 'a.site.test',
        policy: JSON.stringify(OWN_POLICY),
      },
    ])
  })

  it('shows with view=status what is true now', async () => {
    const { call, agent } = await startApi()
    await call('POST', '/tunnels', { ...SPEC, upstream: { health: 'off' } })
    const [tunnel] = agent.list()
    const { json } = await call('GET', '/tunnels?view=status')
    expect(json).toEqual([
      {
        ...VIEW,
        policy: JSON.stringify(JSON.parse(DEFAULT_POLICY)),
        id: tunnel?.id,
        url_part: DOMAIN,
        state: 'online',
        condition: 'working',
        condition_since: expect.stringMatching(/^\d{4}-.*Z$/),
        since: expect.stringMatching(/^\d{4}-.*Z$/),
        reason: null,
        remedy: null,
        last_error: null,
        service_code: null,
        next_retry_at: null,
        reachable: 'unknown',
        visitors: null,
        upstream: 'unknown',
        upstream_settings: { timeout: 60, health: 'off', http2: false, verify_tls: true },
        policy_warning: null,
        pooling_enabled: false,
        created_at: new Date(tunnel?.createdAt ?? 0).toISOString(),
        updated_at: new Date(tunnel?.updatedAt ?? 0).toISOString(),
      },
    ])
  })

  it('has a status that commands also read from an agent without the time of the condition', async () => {
    const { call } = await startApi()
    await call('POST', '/tunnels', SPEC)
    const { json } = await call('GET', '/tunnels?view=status')
    const { condition_since: _, ...older } = json[0]
    const tunnel = TunnelStatusView.parse(older)
    const now = Date.parse(tunnel.since) + 90_000
    expect(tunnelTable([tunnel], now, (text) => text)).toContain(' 1 min ')
  })

  it('shares an address where that is asked for, over a restart', async () => {
    const first = await startApi()
    await first.call('POST', '/tunnels', { ...SPEC, pooling_enabled: true })
    const shown = async ({ call }: typeof first) =>
      (await call('GET', '/tunnels?view=status')).json.map(
        (tunnel: { pooling_enabled: boolean }) => tunnel.pooling_enabled,
      )
    expect(await shown(first)).toEqual([true])
    expect(Object.keys((await first.call('GET', '/tunnels')).json[0])).toHaveLength(5)
    await first.call('PUT', `/tunnels/${DOMAIN}`, { ...SPEC, pooling_enabled: false })
    expect(await shown(first)).toEqual([false])
  })

  it('shows how the service is asked, of each tunnel by itself, over a restart', async () => {
    const upstream = { health: '/alive', timeout: 7, verify_tls: true } as const
    const first = await startApi({ agent: { upstream } })
    const create = (name: string, more: object) =>
      first.call('POST', '/tunnels', { ...SPEC, domain: `${name}.site.test`, ...more })
    expect((await create('a', { upstream: { timeout: 3_600 } })).json).not.toHaveProperty(
      'upstream',
    )
    await create('b', {
      forwards_to: 'https://localhost:8443',
      upstream: { health: 'off', verify_tls: false },
    })
    await create('c', { upstream: { http2: true } })
    await create('d', { upstream: null })
    await create('e', { upstream: { proxy_protocol: 2 } })
    const settingsOf = async ({ call }: typeof first) => {
      expect(Object.keys((await call('GET', '/tunnels')).json[0])).toHaveLength(5)
      const tunnels: { upstream_settings: object }[] = (await call('GET', '/tunnels?view=status'))
        .json
      return tunnels.map(({ upstream_settings }) => upstream_settings)
    }
    const expected = [
      { timeout: 3_600, health: '/alive', http2: false, verify_tls: true },
      { timeout: 7, health: 'off', http2: false, verify_tls: false },
      { timeout: 7, health: '/alive', http2: true, verify_tls: true },
      { timeout: 7, health: '/alive', http2: false, verify_tls: true },
      { timeout: 7, health: '/alive', http2: false, proxy_protocol: 2, verify_tls: true },
    ]
    expect(await settingsOf(first)).toEqual(expected)
    await first.agent.stop()
    first.database.close()
    const second = await startApi({ folder: first.folder, agent: { upstream } })
    expect(await settingsOf(second)).toEqual(expected)
    await second.call('PUT', '/tunnels/a.site.test', { ...SPEC, domain: 'a.site.test' })
    expect((await settingsOf(second))[0]).toEqual({ ...upstream, http2: false })
  })

  it('gives a reason and a remedy for what is not online', async () => {
    const { call, service } = await startApi()
    service.goAway()
    await call('POST', '/tunnels', SPEC)
    const [json] = (await call('GET', '/tunnels?view=status')).json
    expect(json).toMatchObject({ reason: 'network', remedy: expect.any(String) })
    expect(json.state).not.toBe('online')
  })

  it('brings back what was there before a restart', async () => {
    const first = await startApi()
    await first.call('POST', '/tunnels', { ...SPEC, policy: OWN_POLICY })
    const before = (await first.call('GET', '/tunnels')).json
    await first.agent.stop()
    first.database.close()
    const second = await startApi({ folder: first.folder })
    expect((await second.call('GET', '/tunnels')).json).toEqual(before)
  })
})

describe('/tunnels/{url_part}', () => {
  it.each([
    ['its host', () => DOMAIN],
    ['its host in capitals', () => DOMAIN.toUpperCase()],
    ['its first label', () => 'device1'],
    ['its id', (id: string) => id],
  ])('finds a tunnel by %s', async (_title, partOf) => {
    const { call, agent } = await startApi()
    await call('POST', '/tunnels', SPEC)
    const { status, json } = await call('GET', `/tunnels/${partOf(agent.list()[0]?.id ?? '')}`)
    expect([status, json.domain, json.state]).toEqual([200, DOMAIN, 'online'])
  })

  it('never takes a part of a name for the name', async () => {
    const { call } = await startApi()
    await call('POST', '/tunnels', SPEC)
    for (const part of ['device', 'site.test', 'evice1', '*', '%2F']) {
      const { status, json } = await call('GET', `/tunnels/${part}`)
      expect([part, status, json.code]).toEqual([part, 404, 'tunnel-not-found'])
    }
  })

  it('names all that a label could mean', async () => {
    const { call } = await startApi()
    await call('POST', '/tunnels', SPEC)
    await call('POST', '/tunnels', { ...SPEC, domain: 'device1.other.test' })
    const { status, json } = await call('DELETE', '/tunnels/device1')
    expect([status, json.code]).toEqual([409, 'ambiguous-tunnel'])
    expect(json.detail).toContain(`${DOMAIN}, device1.other.test`)
  })

  it('deletes: the endpoint is closed before the 204', async () => {
    const { call, service } = await startApi()
    await call('POST', '/tunnels', SPEC)
    const { status, text } = await call('DELETE', '/tunnels/device1')
    expect([status, text, service.online]).toEqual([204, '', []])
    expect((await call('DELETE', '/tunnels/device1')).status).toBe(404)
    expect((await call('GET', '/tunnels')).json).toEqual([])
  })
})

describe('PUT /tunnels/{domain}', () => {
  it('creates with 201, replaces with 200, and says where it is', async () => {
    const { call } = await startApi()
    const created = await call('PUT', `/tunnels/${DOMAIN}`, SPEC)
    expect([created.status, created.json]).toEqual([201, VIEW])
    expect(created.headers.location).toBe(`/tunnels/${DOMAIN}`)
    const changed = { ...SPEC, forwards_to: 'localhost:9000', policy: OWN_POLICY }
    const replaced = await call('PUT', `/tunnels/${DOMAIN}`, changed)
    expect([replaced.status, replaced.json]).toEqual([200, { ...VIEW, ...changed }])
    expect((await call('GET', '/tunnels')).json).toHaveLength(1)
  })

  it('changes nothing when it says the same again', async () => {
    const { call } = await startApi()
    await call('PUT', `/tunnels/${DOMAIN}`, SPEC)
    const [before] = (await call('GET', '/tunnels?view=status')).json
    expect((await call('PUT', `/tunnels/${DOMAIN}`, SPEC)).status).toBe(200)
    expect((await call('GET', '/tunnels?view=status')).json).toEqual([before])
  })

  it('takes the domain from the path, in any case', async () => {
    const { call } = await startApi()
    const { domain: _left, ...rest } = SPEC
    const { status, json } = await call('PUT', `/tunnels/${DOMAIN.toUpperCase()}`, rest)
    expect([status, json.domain]).toEqual([201, DOMAIN])
  })

  it('answers 202 while the service is away', async () => {
    const { call, service } = await startApi()
    service.goAway()
    expect((await call('PUT', `/tunnels/${DOMAIN}`, SPEC)).status).toBe(202)
  })

  it('refuses a body that names another domain', async () => {
    const { call } = await startApi()
    const { status, json } = await call('PUT', '/tunnels/other.site.test', SPEC)
    expect([status, json.code, json.errors[0].pointer]).toEqual([400, 'invalid-request', '/domain'])
  })
})
