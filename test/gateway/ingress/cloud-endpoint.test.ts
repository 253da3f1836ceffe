import { once } from 'node:events'
import type { AddressInfo } from 'node:net'
import { describe, expect, it, onTestFinished } from 'vitest'
import { WebSocket, WebSocketServer } from 'ws'
import { systemClock } from '../../../src/base/clock.ts'
import { type CloudEndpoint, EndpointTraffic } from '../../../src/gateway/endpoints/endpoint.ts'
import { compilePolicy } from '../../../src/policy/policy.ts'
import { eventually } from '../../helpers/eventually.ts'
import { type IngressSite, startIngressSite } from '../../helpers/ingress-site.ts'
import { RawClient, startScriptedService } from '../../helpers/raw-http.ts'

const GET = 'GET /a?b=c HTTP/1.1\r\nHost: front.test\r\n\r\n'
const OK = 'HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok'
const TO_DEVICE = { type: 'forward-internal', config: { url: 'https://cam.internal' } }

const rules = (...actions: object[]) => [{ actions }]

/** Puts a cloud endpoint on `front.test`, or on another host. */
function openFront({ registry, captured }: IngressSite, document: object, host = 'front.test') {
  const endpoint: CloudEndpoint = {
    type: 'cloud',
    ownerId: null,
    id: `ep_${host}`,
    url: `http://${host}`,
    host,
    protocol: host.endsWith('.internal') ? 'https' : 'http',
    trafficPolicy: JSON.stringify(document),
    policy: compilePolicy(document, {
      clock: systemClock,
      log: captured.log,
      hasInternal: (url) => registry.matchInternal(url, null) !== undefined,
    }),
    metadata: '',
    description: '',
    openedAt: 0,
    updatedAt: 0,
    traffic: new EndpointTraffic(),
  }
  registry.add(endpoint)
  return endpoint
}

/** Brings `https://cam.internal` online, on the device. */
const openDevice = (site: IngressSite) =>
  site.bind(
    'cam.internal',
    'https',
    compilePolicy(null, { clock: systemClock, log: site.captured.log }),
  )

async function siteWithFront(document: object, ...answers: string[]) {
  const service = await startScriptedService(...(answers.length > 0 ? answers : [OK]))
  const site = await startIngressSite({ service: service.port })
  const front = openFront(site, document)
  return { service, site, front, client: RawClient.connect(site.addresses.http.port) }
}

describe('a cloud endpoint', () => {
  it('stands in front of a device: its rules see the request first and the answer last', async () => {
    const { service, site, front, client } = await siteWithFront({
      on_http_request: rules(
        { type: 'add-headers', config: { headers: { 'x-front': 'yes' } } },
        TO_DEVICE,
      ),
      on_http_response: rules({ type: 'add-headers', config: { headers: { 'x-out': 'front' } } }),
    })
    const device = openDevice(site)
    client.send(GET)
    expect(await client.receive('ok')).toBe(OK.replace('\r\n\r\n', '\r\nx-out: front\r\n\r\n'))
    expect(service.requests[0]).toContain('GET /a?b=c HTTP/1.1\r\nHost: front.test\r\n')
    expect(service.requests[0]).toContain('x-front: yes\r\n')
    expect(device.traffic).toMatchObject({ requests: 1, active: 0, refused: 0 })
    expect(device.traffic.bytesIn).toBe(service.requests[0]?.length)
    expect(device.traffic.bytesOut).toBe(client.length)
    expect({ ...front.traffic, outcomes: undefined, lastBegun: 0 }).toEqual({
      ...device.traffic,
      outcomes: undefined,
      lastBegun: 0,
    })
  })

  it('chooses between devices', async () => {
    const { site, client } = await siteWithFront({
      on_http_request: [
        { expressions: ["req.url.path.startsWith('/b/')"], actions: [{ type: 'deny' }] },
        { actions: [TO_DEVICE] },
      ],
    })
    openDevice(site)
    client.send(GET.replace('/a', '/b/'))
    await client.receive('HTTP/1.1 403 ')
    client.send(GET)
    await client.receive('ok')
  })

  it.each([
    ['deny', { status_code: 451 }, 'HTTP/1.1 451 '],
    ['custom-response', { status_code: 201, body: 'made here' }, 'made here'],
    ['redirect', { to: 'https://elsewhere.test/' }, 'location: https://elsewhere.test/'],
  ])('answers by itself: %s', async (type, config, expected) => {
    const { front, client } = await siteWithFront({ on_http_request: rules({ type, config }) })
    client.send(GET)
    await client.receive(expected)
    client.send(GET)
    await eventually(() => expect(front.traffic.requests).toBe(2))
  })

  it('judges connections', async () => {
    const { front, client } = await siteWithFront({ on_tcp_connect: rules({ type: 'deny' }) })
    client.send(GET)
    await eventually(() => expect(client.ending).toBe('ECONNRESET'))
    expect(client.text).toBe('')
    expect(front.traffic).toMatchObject({ requests: 1, active: 0 })
  })

  it('says so when its policy does not end a request', async () => {
    const { front, client } = await siteWithFront({
      on_http_request: rules({
        type: 'forward-internal',
        config: { url: 'https://cam.internal', on_error: 'continue' },
      }),
    })
    client.send(GET)
    await client.receive('(ERR_NGROK_6029)')
    expect(client.text).toMatch(/^HTTP\/1\.1 500 .*ngrok-error-code: ERR_NGROK_6029\r\n/s)
    expect(client.text).not.toContain('connection: close')
    client.send(GET.replace('\r\n\r\n', '\r\nAccept: text/html\r\n\r\n'))
    await client.receive('</html>')
    expect(front.traffic.errors).toEqual(new Map([['ERR_NGROK_6029', 2]]))
  })

  it('says so when it has no rules at all', async () => {
    const { client } = await siteWithFront({})
    client.send(GET)
    await client.receive('(ERR_NGROK_6029)')
  })

  it('says that the device is offline', async () => {
    const { front, client } = await siteWithFront({ on_http_request: rules(TO_DEVICE) })
    client.send(GET)
    await client.receive('(ERR_NGROK_3200)')
    expect(front.traffic.refused).toBe(1)
  })

  it('hands on to an internal one, and the two cannot play ball', async () => {
    const { site, client } = await siteWithFront({ on_http_request: rules(TO_DEVICE) })
    const inner = openFront(
      site,
      { on_http_request: rules({ type: 'custom-response' }) },
      'cam.internal',
    )
    client.send(GET)
    await client.receive('HTTP/1.1 200 ')
    site.registry.remove(inner)
    openFront(site, { on_http_request: rules(TO_DEVICE) }, 'cam.internal')
    client.send(GET)
    await client.receive('(ERR_NGROK_3501)')
  })

  it('obeys its new policy with the next request of a connection that was let in', async () => {
    const { site, front, client } = await siteWithFront({
      on_tcp_connect: rules({ type: 'log', config: { metadata: {} } }),
      on_http_request: rules({ type: 'custom-response', config: { body: 'first' } }),
    })
    client.send(GET)
    await client.receive('first')
    site.registry.remove(front)
    openFront(site, { on_tcp_connect: rules({ type: 'close-connection' }) })
    client.send(GET)
    await eventually(() => expect(client.ending).toBe('ECONNRESET'))
  })

  it('carries a WebSocket through to the device', async () => {
    const server = new WebSocketServer({ port: 0, host: '127.0.0.1' })
    await once(server, 'listening')
    onTestFinished(() => server.close())
    server.on('connection', (socket) => socket.on('message', (data) => socket.send(data)))
    const site = await startIngressSite({ service: (server.address() as AddressInfo).port })
    const front = openFront(site, { on_http_request: rules(TO_DEVICE) })
    const device = openDevice(site)
    const client = new WebSocket(`ws://127.0.0.1:${site.addresses.http.port}/`, {
      headers: { host: 'front.test' },
    })
    await once(client, 'open')
    client.send('hello')
    const [echo] = await once(client, 'message')
    expect(String(echo)).toBe('hello')
    expect([front.traffic.active, device.traffic.active]).toEqual([1, 1])
    client.close()
    await eventually(() => expect([front.traffic.active, device.traffic.active]).toEqual([0, 0]))
    expect({ ...front.traffic, outcomes: undefined, lastBegun: 0 }).toEqual({
      ...device.traffic,
      outcomes: undefined,
      lastBegun: 0,
    })
  })
})
