import { describe, expect, it } from 'vitest'
import { agentWithEndpoint } from '../../../helpers/connected-agent.ts'
import { startManagementApi } from '../../../helpers/management-client.ts'

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
    const key = issuer.createApiKey({ scope: 'read' }).token
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

  it('is not for a key of one account', async () => {
    const { call, issuer } = await startManagementApi()
    const { id: ownerId } = issuer.createBotUser({ name: 'a' })
    const key = issuer.createApiKey({ ownerId }).token
    const { status, body } = await call('GET', '/metrics', { key })
    expect([status, body.error_code]).toEqual([403, 'ERR_GATEWAY_KEY_OWNER'])
    expect((await call('GET', '/metrics', { key: null })).status).toBe(403)
  })
})
