import { describe, expect, it } from 'vitest'
import {
  type AgentEndpoint,
  type ConnectedAgent,
  type Endpoint,
  EndpointTraffic,
} from '../../../src/gateway/endpoints/endpoint.ts'
import { DEFAULT_QUOTAS, QUOTA_NAMES } from '../../../src/gateway/records/account-quotas.ts'
import { ServiceError } from '../../../src/gateway/records/service-error.ts'
import { LimiterTables } from '../../../src/policy/limit/limiter-tables.ts'
import { captureLog } from '../../helpers/captured-log.ts'
import { startManagementApi } from '../../helpers/management-client.ts'
import { ManualClock } from '../../helpers/manual-clock.ts'
import { PolicyBench } from '../../helpers/policy-exchange.ts'

const MADE_AT = '2030-01-01T00:00:00Z'
const idOf = (prefix: string) => expect.stringMatching(new RegExp(`^${prefix}_[0-9A-Za-z]{27}$`))

describe('reserved domains', () => {
  it('need a name', async () => {
    const { call } = await startManagementApi()
    for (const body of [{}, { domain: '' }, { name: '' }]) {
      const { body: refused } = await call('POST', '/reserved_domains', { body })
      const expected = { error_code: 'ERR_NGROK_407', msg: 'The field domain is required.' }
      expect(refused).toMatchObject(expected)
    }
  })

  it('have the shape of the contract while their certificate is on its way', async () => {
    const { call, status, clock, baseUrl } = await startManagementApi()
    const startedAt = clock.now()
    status.current = {
      renewsAt: undefined,
      job: { startedAt, error: undefined, retriesAt: undefined },
    }
    const created = await call('POST', '/reserved_domains', {
      body: { domain: '*.SiteA.example.com', region: 'us' },
    })
    expect(created.status).toBe(201)
    const { id } = created.body
    expect(created.body).toEqual({
      id: idOf('rd'),
      uri: `${baseUrl}/reserved_domains/${id}`,
      created_at: MADE_AT,
      domain: '*.sitea.example.com',
      region: 'us',
      cname_target: expect.stringMatching(/^[0-9a-f]{20}\.cname\.gateway\.test$/),
      http_endpoint_configuration: null,
      https_endpoint_configuration: null,
      certificate: null,
      certificate_management_policy: { authority: 'gateway', private_key_type: 'ecdsa' },
      certificate_management_status: {
        renews_at: null,
        provisioning_job: {
          error_code: null,
          msg: 'Managed certificate provisioning in progress.',
          started_at: MADE_AT,
          retries_at: null,
        },
      },
      acme_challenge_cname_target: expect.stringMatching(/^[0-9a-f]{20}\.acme\.gateway\.test$/),
    })
    expect((await call('GET', `/reserved_domains/${id}`)).body).toEqual(created.body)
    expect((await call('GET', '/reserved_domains')).body.reserved_domains).toEqual([created.body])
  })

  it('tell when the certificate renews, or why there is none', async () => {
    const { call, status, clock, registrar } = await startManagementApi()
    const { id } = await registrar.reserve({ domain: '*.sitea.test' })
    const shown = async () =>
      (await call('GET', `/reserved_domains/${id}`)).body.certificate_management_status
    status.current = { renewsAt: clock.now(), job: undefined }
    expect(await shown()).toEqual({ renews_at: MADE_AT, provisioning_job: null })
    const startedAt = clock.now()
    status.current = {
      renewsAt: undefined,
      job: { startedAt, error: 'it did not work', retriesAt: startedAt + 60_000 },
    }
    expect((await shown()).provisioning_job).toEqual({
      error_code: 'ERR_GATEWAY_CERTIFICATE',
      msg: 'it did not work',
      started_at: MADE_AT,
      retries_at: '2030-01-01T00:01:00Z',
    })
  })

  it('are changed and given up, unless they are in use', async () => {
    const { call, registry } = await startManagementApi()
    const { body } = await call('POST', '/reserved_domains', { body: { name: '*.sitea.test' } })
    const path = `/reserved_domains/${body.id}`
    const changed = await call('PATCH', path, { body: { description: 'site a', metadata: '{}' } })
    expect(changed.body).toMatchObject({ description: 'site a', metadata: '{}' })
    expect(changed.body.cname_target).toBe(body.cname_target)
    expect((await call('PATCH', path, { body: {} })).body.error_code).toBe('ERR_NGROK_422')
    const endpoint = { id: 'ep_1', protocol: 'https', host: 'cam.sitea.test' } as Endpoint
    registry.add(endpoint)
    expect((await call('DELETE', path)).body.error_code).toBe('ERR_NGROK_446')
    registry.remove(endpoint)
    expect((await call('DELETE', path)).status).toBe(204)
    expect((await call('GET', path)).status).toBe(404)
  })
})

describe('bot users', () => {
  it('have the shape of the contract', async () => {
    const { call, baseUrl } = await startManagementApi()
    const { status, body } = await call('POST', '/bot_users', { body: { name: 'site a' } })
    expect(status).toBe(201)
    expect(body).toEqual({
      id: idOf('bot'),
      uri: `${baseUrl}/bot_users/${body.id}`,
      name: 'site a',
      active: true,
      created_at: MADE_AT,
    })
    expect((await call('GET', `/bot_users/${body.id}`)).body).toEqual({
      ...body,
      quotas: DEFAULT_QUOTAS,
      usage: Object.fromEntries(QUOTA_NAMES.map((name) => [name, 0])),
    })
  })

  it('are the same under both names', async () => {
    const { call, baseUrl } = await startManagementApi()
    const { body } = await call('POST', '/service_users', { body: { name: 'site a' } })
    expect(body).toMatchObject({
      id: idOf('service'),
      uri: `${baseUrl}/service_users/${body.id}`,
    })
    const botId = body.id.replace('service', 'bot')
    const changed = await call('PATCH', `/service_users/${body.id}`, { body: { active: false } })
    expect(changed.body.active).toBe(false)
    expect((await call('GET', `/bot_users/${botId}`)).body).toMatchObject({
      id: botId,
      active: false,
    })
    expect((await call('GET', `/bot_users/${body.id}`)).body.error_code).toBe('ERR_NGROK_227')
    expect((await call('DELETE', `/bot_users/${botId}`)).status).toBe(204)
    expect((await call('GET', '/service_users')).body.service_users).toEqual([])
  })
})

describe('credentials', () => {
  it('show their token once', async () => {
    const { call, authority, baseUrl } = await startManagementApi()
    const owner = (await call('POST', '/service_users', { body: { name: 'site a' } })).body
    const request = {
      description: 'cam',
      metadata: '{"rack":7}',
      acl: ['bind:*.sitea.test'],
      owner_id: owner.id,
    }
    const { status, body } = await call('POST', '/credentials', { body: request })
    expect(status).toBe(201)
    expect(body).toEqual({
      ...request,
      id: idOf('cr'),
      uri: `${baseUrl}/credentials/${body.id}`,
      created_at: MADE_AT,
      token: expect.any(String),
      owner_id: owner.id.replace('service', 'bot'),
    })
    expect(authority.authenticate(body.token).id).toBe(body.id)
    const shown = { ...body, token: null }
    expect((await call('GET', `/credentials/${body.id}`)).body).toEqual(shown)
    expect((await call('GET', '/credentials')).body.credentials).toEqual([shown])
  })

  it('take effect at once when they are changed or deleted', async () => {
    const { call, changedCredentials } = await startManagementApi()
    const { id } = (await call('POST', '/credentials', { body: {} })).body
    const path = `/credentials/${id}`
    const changed = await call('PATCH', path, { body: { id, acl: ['bind:a.test'] } })
    expect(changed.body.acl).toEqual(['bind:a.test'])
    expect((await call('PATCH', path, { body: {} })).body.error_code).toBe('ERR_NGROK_606')
    expect((await call('PATCH', path, { body: { id: 'cr_x' } })).body.error_code).toBe(
      'ERR_NGROK_214',
    )
    expect((await call('DELETE', path)).status).toBe(204)
    expect(changedCredentials).toEqual([id, id])
  })
})

describe('API keys', () => {
  it('show their token once, and open the API until they are deleted', async () => {
    const { call } = await startManagementApi()
    const { body } = await call('POST', '/api_keys', { body: { description: 'ci' } })
    expect(body).toMatchObject({ id: idOf('ak'), description: 'ci', metadata: '' })
    const path = `/api_keys/${body.id}`
    const key = body.token
    const changed = await call('PATCH', path, { key, body: { metadata: 'm' } })
    expect(changed.body).toMatchObject({ metadata: 'm', token: null })
    expect((await call('GET', '/api_keys', { key })).body.keys).toHaveLength(2)
    expect((await call('DELETE', path, { key })).status).toBe(204)
    expect((await call('GET', '/api_keys', { key })).status).toBe(403)
  })
})

describe('IP policies and their rules', () => {
  it('are made, changed and deleted together', async () => {
    const { call, baseUrl } = await startManagementApi()
    const policy = (await call('POST', '/ip_policies', { body: { description: 'office' } })).body
    expect(policy).toEqual({
      id: idOf('ipp'),
      uri: `${baseUrl}/ip_policies/${policy.id}`,
      created_at: MADE_AT,
      description: 'office',
      metadata: '',
    })
    const body = { ip_policy_id: policy.id, cidr: '10.0.0.0/8', action: 'deny' }
    const rule = (await call('POST', '/ip_policy_rules', { body })).body
    expect(rule).toEqual({
      id: idOf('ipr'),
      uri: `${baseUrl}/ip_policy_rules/${rule.id}`,
      created_at: MADE_AT,
      description: '',
      metadata: '',
      cidr: '10.0.0.0/8',
      ip_policy: { id: policy.id, uri: policy.uri },
      action: 'deny',
    })
    const path = `/ip_policy_rules/${rule.id}`
    const changed = await call('PATCH', path, { body: { cidr: '2001:db8::/32' } })
    expect(changed.body).toMatchObject({ cidr: '2001:db8::/32', action: 'deny' })
    expect(
      (await call('PATCH', policy.uri.slice(baseUrl.length), { body: {} })).body,
    ).toMatchObject({ error_code: 'ERR_NGROK_1400' })
    const change = (texts: object) =>
      call('PATCH', policy.uri.slice(baseUrl.length), { body: texts })
    expect((await change({ metadata: 'floor 2' })).body).toEqual({ ...policy, metadata: 'floor 2' })
    expect((await change({ description: 'x'.repeat(256) })).body.error_code).toBe('ERR_NGROK_215')
    expect((await call('GET', policy.uri.slice(baseUrl.length))).body.metadata).toBe('floor 2')
    expect((await call('DELETE', `/ip_policies/${policy.id}`)).status).toBe(204)
    expect((await call('GET', path)).status).toBe(404)
  })

  it.each([
    ['10.0.0.0', 'ERR_NGROK_1413'],
    ['2001:db8::1', 'ERR_NGROK_1413'],
    ['10.0.0.1/8', 'ERR_NGROK_1409'],
    ['2001:db8::1/32', 'ERR_NGROK_1409'],
    ['10.0.0.0/33', 'ERR_NGROK_1406'],
    ['office', 'ERR_NGROK_1406'],
    ['::ffff:a00:0/104', 'ERR_NGROK_1406'],
    ['192.0.2.0/24', 'ERR_NGROK_1408'],
    ['2001:DB8::/32', 'ERR_NGROK_1408'],
    ['198.51.100.7/32', undefined],
  ])('judge the CIDR %s with %s', async (cidr, code) => {
    const { call } = await startManagementApi()
    const { id } = (await call('POST', '/ip_policies', { body: {} })).body
    const add = (range: string) =>
      call('POST', '/ip_policy_rules', { body: { ip_policy_id: id, cidr: range } })
    await add('192.0.2.0/24')
    await add('2001:db8::/32')
    expect((await add(cidr)).body.error_code).toBe(code)
  })

  it('refuse a rule without its policy', async () => {
    const { call } = await startManagementApi()
    const body = { ip_policy_id: 'ipp_x', cidr: '10.0.0.0/8' }
    expect((await call('POST', '/ip_policy_rules', { body })).body.error_code).toBe(
      'ERR_NGROK_1414',
    )
  })
})

const TUNNEL_ID = 'tn_2aaaaaaaaaaaaaaaaaaaaaaaaaa'

describe('connected agents', () => {
  const endpoint: AgentEndpoint = {
    type: 'agent',
    ownerId: null,
    id: 'ep_2aaaaaaaaaaaaaaaaaaaaaaaaaa',
    url: 'https://cam.sitea.test:8443',
    host: 'cam.sitea.test',
    protocol: 'https',
    forwardsTo: 'localhost:8001',
    trafficPolicy: '{"on_http_request":[]}',
    policy: new PolicyBench({}).policy,
    metadata: 'm',
    name: 'cam',
    description: 'in the hall',
    sessionId: 'ts_2aaaaaaaaaaaaaaaaaaaaaaaaaa',
    openedAt: Date.UTC(2030, 0, 1),
    traffic: Object.assign(new EndpointTraffic(), {
      requests: 3,
      refused: 1,
      bytesIn: 10,
      bytesOut: 20,
    }),
  } as AgentEndpoint
  for (const status of [200, 204, 502]) endpoint.traffic.countEnd(status, 20)

  const agentOf = (told: string[]): ConnectedAgent => ({
    id: endpoint.sessionId,
    identity: {
      credentialId: 'cr_2aaaaaaaaaaaaaaaaaaaaaaaaaa',
      tokenHash: '',
      ownerId: null,
      presentedClientId: undefined,
      instance: undefined,
      deviceId: 'd7',
      agentVersion: '1.7.0',
      os: 'linux',
      arch: 'arm64',
      hostname: 'cam',
      metadata: '{"device_id":"d7"}',
      remoteAddress: '[2001:db8::1]:4711',
      unsupported: { restart: '', stop: '', update: '' },
    },
    startedAt: Date.UTC(2030, 0, 1),
    duplicate: { seenAt: Date.UTC(2026, 0, 2), ip: '192.0.2.9' },
    latencyMs: 1.234_567,
    endpoints: () => [endpoint],
    refusedEndpoints: () => [
      {
        id: 'ep_2bbbbbbbbbbbbbbbbbbbbbbbbbb',
        url: 'https://lost.sitea.test',
        since: Date.UTC(2030, 0, 1),
        code: 316,
        message: 'not yours',
      },
    ],
    command: async (command) => {
      if (command === 'update') throw new ServiceError(806, 'The agent cannot update: no')
      told.push(command)
    },
    stopTunnel: () => {},
    end: () => {},
  })

  it('are shown with what they have online', async () => {
    const { call, agents, registry, registrar, baseUrl } = await startManagementApi()
    agents.push(agentOf([]))
    registry.add(endpoint)
    const domain = await registrar.reserve({ domain: '*.sitea.test' })
    const { body } = await call('GET', '/tunnel_sessions')
    expect(body.tunnel_sessions).toEqual([
      {
        id: endpoint.sessionId,
        uri: `${baseUrl}/tunnel_sessions/${endpoint.sessionId}`,
        agent_version: '1.7.0',
        credential: {
          id: 'cr_2aaaaaaaaaaaaaaaaaaaaaaaaaa',
          uri: `${baseUrl}/credentials/cr_2aaaaaaaaaaaaaaaaaaaaaaaaaa`,
        },
        ip: '2001:db8::1',
        metadata: '{"device_id":"d7"}',
        os: 'linux',
        region: '',
        started_at: MADE_AT,
        transport: 'ngrok/v2',
        arch: 'arm64',
        hostname: 'cam',
        latency_ms: 1.235,
        duplicate: { seen_at: '2026-01-02T00:00:00Z', ip: '192.0.2.9' },
        endpoints: [{ id: endpoint.id, uri: `${baseUrl}/endpoints/${endpoint.id}` }],
        refused_endpoints: [
          {
            id: 'ep_2bbbbbbbbbbbbbbbbbbbbbbbbbb',
            url: 'https://lost.sitea.test',
            since: MADE_AT,
            error_code: 'ERR_NGROK_316',
            text: 'not yours',
          },
        ],
      },
    ])
    expect((await call('GET', `/endpoints/${endpoint.id}`)).body).toEqual({
      id: endpoint.id,
      uri: `${baseUrl}/endpoints/${endpoint.id}`,
      created_at: MADE_AT,
      updated_at: MADE_AT,
      public_url: 'https://cam.sitea.test:8443',
      url: 'https://cam.sitea.test:8443',
      proto: 'https',
      scheme: 'https',
      hostport: 'cam.sitea.test:8443',
      host: 'cam.sitea.test',
      port: 8443,
      type: 'ephemeral',
      name: 'cam',
      description: 'in the hall',
      metadata: 'm',
      domain: { id: domain.id, uri: `${baseUrl}/reserved_domains/${domain.id}` },
      tunnel: { id: TUNNEL_ID, uri: `${baseUrl}/tunnels/${TUNNEL_ID}` },
      tunnel_session: {
        id: endpoint.sessionId,
        uri: `${baseUrl}/tunnel_sessions/${endpoint.sessionId}`,
      },
      upstream_url: 'localhost:8001',
      traffic_policy: '{"on_http_request":[]}',
      bindings: ['public'],
      pooling_enabled: false,
      owner_id: null,
      shared: false,
      region: '',
      traffic: {
        requests: 3,
        refused: 1,
        policy_over_budget: 0,
        bytes_in: 10,
        bytes_out: 20,
        status_none: 0,
        status_1xx: 0,
        status_2xx: 2,
        status_3xx: 0,
        status_4xx: 0,
        status_5xx: 1,
      },
      rate_limits: { keys: 0, max_keys: 0, bytes: 0, shared: 0, shared_refused: 0 },
    })
  })

  it('show what the rate limits of their policies hold, all together', async () => {
    const { call, registry } = await startManagementApi()
    const limit = (capacity: number, bucketKey: string) => ({
      type: 'rate-limit',
      config: {
        name: 'clients',
        algorithm: 'sliding_window',
        capacity,
        rate: '60s',
        bucket_key: [bucketKey],
        enforce: false,
      },
    })
    const document = {
      on_http_request: [
        { actions: [limit(1, "req.headers['x-key']"), limit(100, 'conn.client_ip')] },
      ],
    }
    const clock = new ManualClock()
    const limits = new LimiterTables({ maxKeys: 4, clock, log: captureLog().log })
    const bench = new PolicyBench(document, { limits, clock })
    registry.add({ ...endpoint, policy: bench.policy } as AgentEndpoint)
    for (const key of ['a', 'b', 'c', 'd', 'e']) await bench.request({ headers: ['x-key', key] })
    const { body } = await call('GET', `/endpoints/${endpoint.id}`)
    // One address owns one of four buckets, and one request fits into what is shared.
    expect(body.rate_limits).toMatchObject({ keys: 2, max_keys: 8, shared: 4, shared_refused: 3 })
    expect(body.rate_limits.bytes).toBeGreaterThan(10_000)
  })

  it('have a tunnel for each endpoint, with the same number', async () => {
    const { call, registry, baseUrl } = await startManagementApi()
    registry.add(endpoint)
    const tunnel = {
      id: TUNNEL_ID,
      uri: `${baseUrl}/tunnels/${TUNNEL_ID}`,
      public_url: 'https://cam.sitea.test:8443',
      proto: 'https',
      started_at: MADE_AT,
      region: '',
      metadata: 'm',
      forwards_to: 'localhost:8001',
      tunnel_session: {
        id: endpoint.sessionId,
        uri: `${baseUrl}/tunnel_sessions/${endpoint.sessionId}`,
      },
      endpoint: { id: endpoint.id, uri: `${baseUrl}/endpoints/${endpoint.id}` },
      labels: {},
      backends: [],
    }
    expect((await call('GET', `/tunnels/${TUNNEL_ID}`)).body).toEqual(tunnel)
    expect((await call('GET', '/tunnels')).body).toEqual({
      uri: `${baseUrl}/tunnels`,
      next_page_uri: null,
      tunnels: [tunnel],
    })
    expect((await call('GET', `/tunnels/${endpoint.id}`)).body.error_code).toBe('ERR_NGROK_227')
    expect((await call('DELETE', `/tunnels/${TUNNEL_ID}`)).status).toBe(405)
    registry.remove(endpoint)
    expect((await call('GET', `/tunnels/${TUNNEL_ID}`)).status).toBe(404)
  })

  it('are told to restart and stop, and what they cannot do is said', async () => {
    const { call, agents } = await startManagementApi()
    const told: string[] = []
    agents.push(agentOf(told))
    const path = `/tunnel_sessions/${endpoint.sessionId}`
    expect((await call('POST', `${path}/restart`)).status).toBe(204)
    const bareId = { body: endpoint.sessionId, headers: { 'content-type': 'application/json' } }
    expect((await call('POST', `${path}/stop`, bareId)).status).toBe(204)
    expect(told).toEqual(['restart', 'stop'])
    expect((await call('POST', `${path}/update`, { body: {} })).body.error_code).toBe(
      'ERR_NGROK_806',
    )
    expect((await call('POST', `${path}/explode`)).status).toBe(404)
  })

  it('own their endpoints: nobody else changes them', async () => {
    const { call, registry } = await startManagementApi()
    registry.add(endpoint)
    for (const method of ['PATCH', 'DELETE']) {
      const options = method === 'PATCH' ? { body: { description: 'x' } } : {}
      const { body } = await call(method, `/endpoints/${endpoint.id}`, options)
      expect(body.error_code).toBe('ERR_NGROK_248')
      expect(body.msg).toContain('belongs to an agent')
    }
    expect(registry.match(endpoint.host)).toBe(endpoint)
  })
})
