import { describe, expect, it } from 'vitest'
import { agentWithEndpoint } from '../../helpers/connected-agent.ts'
import { eventually } from '../../helpers/eventually.ts'
import { startManagementApi } from '../../helpers/management-client.ts'

describe('/metrics of the gateway', () => {
  it('has what went through, also through endpoints that are gone', async () => {
    const { call, registry, online, issuer } = await startManagementApi()
    const { agent, traffic } = agentWithEndpoint('2')
    await online(agent)
    const [endpoint] = agent.endpoints()
    if (!endpoint) throw new Error('it has none')
    registry.add(endpoint)
    traffic.requests = 5
    traffic.bytesIn = 10
    traffic.active = 1
    traffic.countRefusal('ERR_NGROK_3200')
    traffic.countEnd(404, 300)
    const key = (await issuer.createApiKey({ scope: 'read' })).token
    const scrape = async () => {
      // Prometheus sends no header of ours.
      const { status, body, headers } = await call('GET', '/metrics', {
        key,
        headers: { 'svc-version': '' },
      })
      expect([status, headers.get('content-type')]).toEqual([
        200,
        'text/plain; version=0.0.4; charset=utf-8',
      ])
      return body.split('\n')
    }
    expect(await scrape()).toEqual(
      expect.arrayContaining([
        'device_gateway_requests_total{protocol="https"} 5',
        'device_gateway_received_bytes_total{protocol="https"} 10',
        'device_gateway_requests_active{protocol="https"} 1',
        'device_gateway_endpoint_requests_total{endpoint="https://press-2.site.test"} 5',
        'device_gateway_endpoint_responses_total{endpoint="https://press-2.site.test",class="4xx"} 1',
        'device_gateway_endpoint_responses_total{endpoint="https://press-2.site.test",class="5xx"} 0',
        'device_gateway_endpoint_request_duration_seconds_bucket{endpoint="https://press-2.site.test",le="0.25"} 0',
        'device_gateway_endpoint_request_duration_seconds_bucket{endpoint="https://press-2.site.test",le="0.5"} 1',
        'device_gateway_endpoint_request_duration_seconds_sum{endpoint="https://press-2.site.test"} 0.3',
        'device_gateway_endpoint_request_duration_seconds_count{endpoint="https://press-2.site.test"} 1',
        'device_gateway_errors_total{code="ERR_NGROK_3200"} 1',
        'device_gateway_devices{state="online"} 1',
        'device_gateway_endpoints{protocol="https"} 1',
        'device_gateway_sessions 1',
        'device_gateway_storage_writable 1',
      ]),
    )
    registry.remove(endpoint)
    // What is under way ends later.
    await scrape()
    traffic.requests = 7
    traffic.active = 0
    await scrape()
    const after = await scrape()
    expect(after).toEqual(
      expect.arrayContaining([
        'device_gateway_requests_total{protocol="https"} 7',
        'device_gateway_requests_active{protocol="https"} 0',
        'device_gateway_errors_total{code="ERR_NGROK_3200"} 1',
        'device_gateway_endpoints{protocol="https"} 0',
      ]),
    )
    expect(after.join()).not.toContain('press-2')
  })

  it('says how webhooks and certificates do', async () => {
    const { call, issuer, webhooks, registrar, status } = await startManagementApi()
    const hook = () =>
      webhooks.create({
        ownerId: null,
        url: 'http://127.0.0.1:1/',
        description: '',
        eventTypes: [],
      })
    await hook()
    await webhooks.update(await hook(), { isActive: false })
    for (const n of [1, 2]) await registrar.reserve({ domain: `*.site${n}.test` })
    const key = (await issuer.createApiKey({ scope: 'read' })).token
    const scrape = async () =>
      (await call('GET', '/metrics', { key, headers: { 'svc-version': '' } })).body.split('\n')
    expect(await scrape()).toEqual(
      expect.arrayContaining([
        'device_gateway_webhooks{state="taken"} 1',
        'device_gateway_webhooks{state="failing"} 0',
        'device_gateway_webhooks{state="paused"} 1',
        'device_gateway_webhook_behind 0',
        'device_gateway_certificates{state="good"} 2',
      ]),
    )
    status.current = {
      renewsAt: undefined,
      job: { startedAt: 0, error: 'refused', retriesAt: undefined },
    }
    expect(await scrape()).toContain('device_gateway_certificates{state="failed"} 2')
    status.current = {
      renewsAt: undefined,
      job: { startedAt: 0, error: undefined, retriesAt: undefined },
    }
    expect(await scrape()).toContain('device_gateway_certificates{state="pending"} 2')
  })

  it('counts webhooks that are not taken, and what waits for them', async () => {
    const { call, issuer, webhooks, database, events, clock } = await startManagementApi({
      mayDial: () => false,
    })
    await webhooks.create({
      ownerId: null,
      url: 'http://127.0.0.1:1/',
      description: '',
      eventTypes: [],
    })
    for (let n = 0; n < 3; n += 1) {
      const event = { at: clock.now(), type: 'device.online', ownerId: null, details: {} } as const
      database.write(() => events.append(event))
    }
    const key = (await issuer.createApiKey({ scope: 'read' })).token
    await eventually(async () => {
      const { body } = await call('GET', '/metrics', { key, headers: { 'svc-version': '' } })
      expect(body.split('\n')).toEqual(
        expect.arrayContaining([
          'device_gateway_webhooks{state="failing"} 1',
          'device_gateway_webhook_behind 3',
        ]),
      )
    })
  })

  it('is not for a key of one account', async () => {
    const { call, issuer } = await startManagementApi()
    const { id: ownerId } = await issuer.createBotUser({ name: 'a' })
    const key = (await issuer.createApiKey({ ownerId })).token
    const { status, body } = await call('GET', '/metrics', { key })
    expect([status, body.error_code]).toEqual([403, 'ERR_GATEWAY_KEY_OWNER'])
    expect((await call('GET', '/metrics', { key: null })).status).toBe(403)
  })
})
