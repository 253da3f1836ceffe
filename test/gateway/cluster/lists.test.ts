import { afterAll, beforeAll, describe, expect, it } from 'vitest'
import { ResourceNotFoundError } from '../../../src/gateway/records/service-error.ts'
import { elsewhere } from '../../../src/gateway/resources/common/elsewhere.ts'
import { ChaosProxy } from '../../helpers/chaos-proxy.ts'
import { ConsoleBrowser } from '../../helpers/console-browser.ts'
import { eventually } from '../../helpers/eventually.ts'
import { GatewayCluster, nodeIn } from '../../helpers/gateway-cluster.ts'
import { managed } from '../../helpers/managed-gateway.ts'
import { hasPostgres, TestPostgres } from '../../helpers/postgres.ts'
import { bind, connectSdk } from '../../helpers/running-gateway.ts'
import { lastingAddress } from '../../helpers/some-ports.ts'

const API = { host: '127.0.0.1', port: 0 }
const LISTS = ['endpoints', 'tunnels', 'tunnel_sessions', 'devices'] as const

describe.skipIf(!hasPostgres)('lists of several gateways', () => {
  let postgres: TestPostgres
  beforeAll(async () => {
    postgres = await TestPostgres.shared()
  })
  afterAll(() => postgres?.remove())

  it('are of all of them, and say which one does not answer', async () => {
    const cluster = GatewayCluster.open(await postgres.database())
    const one = await cluster.start({
      apiListen: API,
      publicNames: [{ host: 'one.example.com', port: 14443 }],
    })
    // Whom the others reach by a proxy.
    const peer = { host: '127.0.0.2', port: lastingAddress().port }
    const proxy = await ChaosProxy.start(peer)
    const two = await cluster.start({
      ...{ authtoken: one.authtoken, apiListen: API },
      peer: { listen: peer, address: proxy.address },
    })
    const { call, apiKey } = await managed(one)
    const seen = await managed(two)
    await eventually(async () => {
      const { nodes } = (await seen.call('GET', '/nodes')).body
      const addresses = nodes.map((node: { agent_addresses: string[] }) => node.agent_addresses)
      expect(addresses).toContainEqual(['one.example.com:14443'])
    })
    const metadata = JSON.stringify({ device_id: 'oven' })
    const session = await connectSdk(two, { authtoken: one.authtoken, metadata })
    await bind(session, 'oven.site.test')
    await bind(
      await connectSdk(one, { metadata: JSON.stringify({ device_id: 'press' }) }),
      'press.site.test',
    )
    const rules = [{ actions: [{ type: 'custom-response', config: { status_code: 200 } }] }]
    const { status: isMade, body: made } = await call('POST', '/endpoints', {
      ...{ url: 'https://cloud.site.test', type: 'cloud' },
      traffic_policy: JSON.stringify({ on_http_request: rules }),
    })
    expect([isMade, made]).toMatchObject([201, { host: 'cloud.site.test' }])
    const hostsOf = async (path: string) =>
      (await call('GET', path)).body.endpoints.map(({ host }: { host: string }) => host).sort()
    await eventually(async () => {
      expect(await hostsOf('/endpoints')).toEqual([
        'cloud.site.test',
        'oven.site.test',
        'press.site.test',
      ])
    })
    // One page after another.
    const { body: page } = await call('GET', '/endpoints?limit=2')
    const rest = new URL(page.next_page_uri)
    expect(page.endpoints).toHaveLength(2)
    expect((await call('GET', `${rest.pathname}${rest.search}`)).body.endpoints).toHaveLength(1)
    const filter = encodeURIComponent('obj.url.contains("oven")')
    expect(await hostsOf(`/endpoints?filter=${filter}`)).toEqual(['oven.site.test'])
    const { body: sessions } = await call('GET', '/tunnel_sessions')
    expect(sessions.tunnel_sessions).toHaveLength(2)
    const there = [...two.gateway.parts.sessions.all()][0]?.id
    expect((await call('GET', `/tunnel_sessions/${there}`)).body.id).toBe(there)
    await eventually(async () => {
      const { devices } = (await call('GET', '/devices')).body
      const seen = devices.map((it: Record<string, unknown[]>) => [
        it.device_id,
        it.state,
        it.tunnel_sessions?.length,
      ])
      expect(seen.sort()).toEqual([
        ['oven', 'online', 1],
        ['press', 'online', 1],
      ])
    })
    // The console adds the figures of a cloud endpoint that each gateway counts.
    const browser = new ConsoleBrowser(`http://127.0.0.1:${one.addresses.api?.port}`)
    await browser.signIn(apiKey.reveal())
    await eventually(async () => {
      for (const { gateway } of [one, two]) {
        const endpoint = gateway.parts.registry.find(made.id) ?? expect.fail('no cloud endpoint')
        endpoint.traffic.requests = 2
      }
      const rows = (await browser.call('GET', '/console/api/endpoint_rows')).body.endpoints
      const figures = rows.map(({ url, device, requests }: Record<string, string>) => {
        return [new URL(url ?? '').hostname, device !== null, requests]
      })
      expect(figures.sort()).toEqual([
        ['cloud.site.test', false, 4],
        ['oven.site.test', true, 0],
        ['press.site.test', true, 0],
      ])
    })
    const [oven] = (await call('GET', `/endpoints?filter=${filter}`)).body.endpoints
    expect(await call('DELETE', `/endpoints/${oven.id}`)).toMatchObject({ status: 400 })
    expect((await call('GET', `/endpoints/${made.id}`)).body.host).toBe('cloud.site.test')
    // What is in use at another gateway is not given up.
    const domains = (await call('GET', '/reserved_domains')).body.reserved_domains
    const site = domains.find(({ domain }: { domain: string }) => domain === '*.site.test')
    expect(await call('DELETE', `/reserved_domains/${site.id}`)).toMatchObject({
      body: { error_code: 'ERR_NGROK_446' },
    })
    for (const list of LISTS)
      expect((await call('GET', `/${list}`)).body).not.toHaveProperty('missing_nodes')
    await call('POST', '/vaults', { name: 'site' })
    const secret = { vault_name: 'site', name: 'key', value: 'value' }
    const { id: secretId } = (await call('POST', '/vault_secrets', secret)).body
    proxy.freeze()
    const missing = [{ id: nodeIn(two.gateway)?.nodeId, name: expect.any(String) }]
    for (const list of LISTS) {
      const { status, body } = await call('GET', `/${list}`)
      expect([list, status, body.missing_nodes]).toEqual([list, 200, missing])
    }
    // The other gateway may have devices whose policies use the secret.
    expect(await call('DELETE', `/vault_secrets/${secretId}`)).toMatchObject({
      body: { error_code: 'ERR_NGROK_840' },
    })
    expect((await call('DELETE', `/vault_secrets/${secretId}/force`)).status).toBe(204)
    // Who looks after one account alone does not hear what machines are called.
    const { issuer } = one.gateway.parts
    const bot = await issuer.createBotUser({ name: 'somebody' })
    const { token } = await issuer.createApiKey({ ownerId: bot.id, isOwnerOnly: true })
    const ofBotOnly = new ConsoleBrowser(`http://127.0.0.1:${one.addresses.api?.port}`)
    await ofBotOnly.signIn(token.reveal())
    const lostId = nodeIn(two.gateway)?.nodeId
    for (const path of ['device_rows', 'endpoint_rows']) {
      const { body } = await ofBotOnly.call('GET', `/console/api/${path}`)
      expect([path, body.missing_nodes]).toEqual([path, [{ id: lostId, name: lostId }]])
    }
    const { body: ofBot } = await call('GET', '/endpoints', undefined, token.reveal())
    expect(ofBot).toMatchObject({
      endpoints: [],
      missing_nodes: [{ id: missing[0]?.id, name: missing[0]?.id }],
    })
    expect(await call('GET', `/tunnel_sessions/${there}`)).toMatchObject({
      status: 503,
      body: { error_code: 'ERR_NGROK_840' },
    })
    proxy.thaw()
    await eventually(async () => {
      expect((await call('GET', `/tunnel_sessions/${there}`)).status).toBe(200)
    })
    // An action reaches the gateway that the session is at; this SDK obeys none.
    expect(await call('POST', `/tunnel_sessions/${there}/restart`)).toMatchObject({
      body: { error_code: 'ERR_NGROK_804' },
    })
    // It may have gone since it was found.
    const { nodeId } = nodeIn(two.gateway) ?? {}
    const viewer = { ownerId: null, isOwnerOnly: false }
    const act = elsewhere(one.gateway.parts.others, 'tunnel_sessions').act
    await expect(act(String(nodeId), 'ts_gone', 'restart', viewer)).rejects.toThrow(
      ResourceNotFoundError,
    )
  })
})
