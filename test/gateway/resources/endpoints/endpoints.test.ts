import { describe, expect, it } from 'vitest'
import { agentWithEndpoint } from '../../../helpers/connected-agent.ts'
import { startManagementApi } from '../../../helpers/management-client.ts'

const MADE_AT = '2030-01-01T00:00:00Z'
const POLICY = JSON.stringify({ on_http_request: [{ actions: [{ type: 'deny' }] }] })
const UNKNOWN = 'ep_000000000000000000000000000'

async function openApi() {
  const api = await startManagementApi()
  const domain = await api.registrar.reserve({ domain: '*.sitea.test' })
  const request = { url: 'https://front.sitea.test', type: 'cloud', traffic_policy: POLICY }
  const create = (change: object = {}) =>
    api.call('POST', '/endpoints', { body: { ...request, ...change } })
  return { ...api, domain, create }
}

describe('cloud endpoints', () => {
  it('have the shape of all endpoints', async () => {
    const { create, call, baseUrl, domain } = await openApi()
    const more = { description: 'front door', metadata: '{"a":1}', bindings: ['public'] }
    const { status, body } = await create({ ...more, pooling_enabled: false })
    expect(status).toBe(201)
    expect(body).toEqual({
      id: expect.stringMatching(/^ep_[0-9A-Za-z]{27}$/),
      uri: `${baseUrl}/endpoints/${body.id}`,
      created_at: MADE_AT,
      updated_at: MADE_AT,
      public_url: 'https://front.sitea.test:8443',
      url: 'https://front.sitea.test:8443',
      proto: 'https',
      scheme: 'https',
      hostport: 'front.sitea.test:8443',
      host: 'front.sitea.test',
      port: 8443,
      type: 'cloud',
      name: '',
      description: 'front door',
      metadata: '{"a":1}',
      domain: { id: domain.id, uri: `${baseUrl}/reserved_domains/${domain.id}` },
      tunnel: null,
      tunnel_session: null,
      upstream_url: '',
      traffic_policy: POLICY,
      bindings: ['public'],
      pooling_enabled: false,
      owner_id: null,
      shared: false,
      region: '',
      traffic: {
        requests: 0,
        refused: 0,
        policy_over_budget: 0,
        bytes_in: 0,
        bytes_out: 0,
        status_none: 0,
        status_1xx: 0,
        status_2xx: 0,
        status_3xx: 0,
        status_4xx: 0,
        status_5xx: 0,
      },
      rate_limits: { keys: 0, max_keys: 0, bytes: 0, shared: 0, shared_refused: 0 },
    })
    expect((await call('GET', `/endpoints/${body.id}`)).body).toEqual(body)
    expect((await call('GET', '/endpoints')).body.endpoints).toEqual([body])
    expect((await call('GET', '/tunnels')).body.tunnels).toEqual([])
  })

  it('share a URL with pooling, each an endpoint of its own', async () => {
    const { create, call } = await openApi()
    const [first, second] = [
      (await create({ pooling_enabled: true })).body,
      (await create({ pooling_enabled: true })).body,
    ]
    expect([first.pooling_enabled, first.url]).toEqual([true, second.url])
    expect((await call('GET', '/endpoints')).body.endpoints).toEqual([second, first])
    expect((await create()).body.error_code).toBe('ERR_NGROK_18017')
    const path = `/endpoints/${first.id}`
    const alone = { pooling_enabled: false }
    expect((await call('PATCH', path, { body: alone })).body.error_code).toBe('ERR_NGROK_18017')
    expect((await call('DELETE', `/endpoints/${second.id}`)).status).toBe(204)
    expect((await call('PATCH', path, { body: alone })).body.pooling_enabled).toBe(false)
  })

  it('need no type, and no domain when they are internal', async () => {
    const { create } = await openApi()
    const { status, body } = await create({ url: 'http://hall.internal', type: undefined })
    expect([status, body.url, body.port]).toEqual([201, 'http://hall.internal', 80])
    expect([body.type, body.bindings, body.domain]).toEqual(['cloud', ['internal'], null])
  })

  it.each([
    [{ url: undefined }, 'ERR_NGROK_215'],
    [{ traffic_policy: undefined }, 'ERR_NGROK_215'],
    [{ traffic_policy: {} }, 'ERR_NGROK_215'],
    [{ color: 'red' }, 'ERR_NGROK_214'],
    [{ type: 'agent' }, 'ERR_NGROK_248'],
    [{ type: 'ephemeral' }, 'ERR_NGROK_248'],
    [{ url: 'front.sitea.test' }, 'ERR_NGROK_18022'],
    [{ url: 'https://front.sitea.test/x' }, 'ERR_NGROK_18001'],
    [{ url: 'https://front.sitea.test:1' }, 'ERR_NGROK_18003'],
    [{ url: 'https://front.siteb.test' }, 'ERR_NGROK_319'],
    [{ url: 'https://taken.sitea.test' }, 'ERR_NGROK_334'],
    [{ bindings: ['internal'] }, 'ERR_NGROK_9029'],
    [{ bindings: ['kubernetes'] }, 'ERR_NGROK_18014'],
    [{ url: 'https://taken.sitea.test', pooling_enabled: true }, 'ERR_NGROK_18016'],
    [{ description: 'x'.repeat(256) }, 'ERR_NGROK_18012'],
    [{ metadata: 'x'.repeat(4_097) }, 'ERR_NGROK_18013'],
    [{ traffic_policy: '{"on_http_request":[{"actions":[{"type":"x"}]}]}' }, 'ERR_NGROK_2201'],
    [{ traffic_policy: '{}' }, 'ERR_NGROK_2235'],
  ])('are refused with %j: %s', async (change, code) => {
    const { create, call } = await openApi()
    expect((await create({ url: 'https://taken.sitea.test' })).status).toBe(201)
    const { status, body } = await create(change)
    expect([status, body.error_code]).toEqual([400, code])
    expect((await call('GET', '/endpoints')).body.endpoints).toHaveLength(1)
  })

  it('change what is given, and only that', async () => {
    const { create, call, clock } = await openApi()
    const made = (await create({ description: 'front door', metadata: 'm' })).body
    const path = `/endpoints/${made.id}`
    const { traffic_policy } = { traffic_policy: POLICY.replace('"deny"', '"custom-response"') }
    await clock.advance(5_000)
    const later = '2030-01-01T00:00:05Z'
    const changes = [
      { url: 'https://door.sitea.test' },
      { traffic_policy },
      { description: 'back door' },
      { metadata: '' },
      { bindings: ['public'] },
      { pooling_enabled: true },
    ]
    let expected = { ...made, updated_at: later }
    for (const change of changes) {
      const { status, body } = await call('PATCH', path, { body: change })
      const urls = change.url && {
        url: `${change.url}:8443`,
        public_url: `${change.url}:8443`,
        host: 'door.sitea.test',
        hostport: 'door.sitea.test:8443',
      }
      expected = { ...expected, ...change, ...urls }
      expect([status, body]).toEqual([200, expected])
    }
    expect((await call('GET', path)).body).toEqual(expected)
  })

  it.each([
    [{}, 'ERR_NGROK_18004'],
    [{ color: 'red' }, 'ERR_NGROK_214'],
    [{ type: 'cloud' }, 'ERR_NGROK_214'],
    [{ url: 'http://front.sitea.test' }, 'ERR_NGROK_18005'],
    [{ url: 'https://other.sitea.test' }, 'ERR_NGROK_334'],
    [{ url: 'https://other.sitea.test', pooling_enabled: true }, 'ERR_NGROK_18016'],
    [{ traffic_policy: '{}' }, 'ERR_NGROK_2235'],
  ])('are not changed to %j: %s', async (change, code) => {
    const { create, call } = await openApi()
    await create({ url: 'https://other.sitea.test' })
    const made = (await create()).body
    const path = `/endpoints/${made.id}`
    expect((await call('PATCH', path, { body: change })).body.error_code).toBe(code)
    expect((await call('GET', path)).body).toEqual(made)
  })

  it('are gone once they are deleted, and their domain is free again', async () => {
    const { create, call, domain } = await openApi()
    const { id } = (await create()).body
    const domainPath = `/reserved_domains/${domain.id}`
    expect((await call('DELETE', domainPath)).body.error_code).toBe('ERR_NGROK_446')
    expect((await call('DELETE', `/endpoints/${id}`)).status).toBe(204)
    expect((await call('GET', `/endpoints/${id}`)).status).toBe(404)
    const unknown = await call('PATCH', `/endpoints/${UNKNOWN}`, { body: { description: 'x' } })
    expect(unknown.status).toBe(404)
    expect((await call('DELETE', domainPath)).status).toBe(204)
  })

  it('stand among the endpoints of agents, newest first', async () => {
    const { create, call, registry } = await openApi()
    const ids: string[] = []
    for (const name of ['a', 'b', 'c']) {
      ids.unshift((await create({ url: `https://${name}.sitea.test` })).body.id)
    }
    const first = (await call('GET', '/endpoints?limit=2')).body
    expect(first.endpoints.map(({ id }: { id: string }) => id)).toEqual(ids.slice(0, 2))
    expect(first.next_page_uri).toContain(`before_id=${ids[1]}`)
    const { agent } = agentWithEndpoint('1')
    for (const endpoint of agent.endpoints()) registry.add(endpoint)
    const chosen = async (path: string, filter: string) =>
      (await call('GET', `${path}?filter=${encodeURIComponent(filter)}`)).body
    expect((await chosen('/endpoints', 'obj.type == "cloud"')).endpoints).toHaveLength(3)
    expect((await chosen('/endpoints', 'has(obj.tunnel)')).endpoints).toHaveLength(1)
    const { tunnels } = await chosen('/tunnels', 'obj.forwards_to.startsWith("localhost")')
    expect(tunnels).toHaveLength(1)
  })
})
