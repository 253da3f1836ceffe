import { once } from 'node:events'
import { Agent, createServer, get, type RequestListener, request, type Server } from 'node:http'
import type { AddressInfo, Socket } from 'node:net'
import { describe, expect, it, onTestFinished } from 'vitest'
import { WebSocket, WebSocketServer } from 'ws'
import type { AgentEndpoint } from '../../../src/gateway/endpoints/endpoint.ts'
import { eventually } from '../../helpers/eventually.ts'
import { fieldsOf, RawClient } from '../../helpers/raw-http.ts'
import { connectSdk, inTime, startGateway } from '../../helpers/running-gateway.ts'
import { settled } from '../../helpers/settled.ts'

const HOST = 'a.site.test'
const GET = `GET / HTTP/1.1\r\nHost: ${HOST}\r\n\r\n`

interface Tunnel {
  readonly port: number
  readonly endpoint: AgentEndpoint
}

/** A tunnel of the real SDK to a local port. */
async function openTunnel(servicePort: number): Promise<Tunnel> {
  const running = await startGateway()
  const sdk = await connectSdk(running)
  const listener = await inTime(sdk.httpEndpoint().domain(HOST).listen())
  listener.forward(`http://127.0.0.1:${servicePort}`).catch(() => {})
  const endpoint = running.gateway.parts.registry.match(HOST)
  if (endpoint?.type !== 'agent') throw new Error('the endpoint is not online')
  return { port: running.addresses.http.port, endpoint }
}

async function startService(listener: RequestListener): Promise<Server & { port: number }> {
  const server = createServer(listener)
  server.listen(0, '127.0.0.1')
  await once(server, 'listening')
  onTestFinished(() => {
    server.closeAllConnections()
    server.close()
  })
  return Object.assign(server, { port: (server.address() as AddressInfo).port })
}

/** The status of one request; its body is read and dropped. */
function visit(port: number, path = '/', agent?: Agent): Promise<number> {
  return new Promise((resolve, reject) => {
    get({ port, path, headers: { host: HOST }, ...(agent ? { agent } : {}) }, (response) => {
      response.resume()
      response.on('error', reject)
      response.on('end', () => resolve(response.statusCode ?? 0))
    }).on('error', reject)
  })
}

/** Asks `count` times, ten at a time; each is answered. */
async function visitQuickly(count: number, port: number): Promise<void> {
  const agent = new Agent({ keepAlive: true, maxSockets: 10 })
  onTestFinished(() => agent.destroy())
  const statuses = await Promise.all(
    Array.from({ length: count }, () => visit(port, '/quick', agent)),
  )
  expect(new Set(statuses)).toEqual(new Set([200]))
}

describe('with the real SDK', () => {
  it.each(['GET', 'HEAD', 'POST'])(
    'a service that is down is ERR_NGROK_8012 for %s',
    async (method) => {
      const { port, endpoint } = await openTunnel(1)
      const free = endpoint.streams.freeSlots
      const client = RawClient.connect(port)
      client.send(`${method} / HTTP/1.1\r\nHost: ${HOST}\r\nConnection: close\r\n\r\n`)
      await client.end()
      expect(client.text).toMatch(/^HTTP\/1\.1 502 /)
      expect(fieldsOf(client.text)['ngrok-error-code']).toBe('ERR_NGROK_8012')
      await eventually(() => expect(endpoint.streams.freeSlots).toBeGreaterThanOrEqual(free))
    },
  )

  it("a service's own 502 stays its own", async () => {
    const service = await startService((_request, response) => {
      response.writeHead(502, { connection: 'close' })
      response.end('failed upstream')
    })
    const { port } = await openTunnel(service.port)
    const client = RawClient.connect(port)
    client.send(GET)
    expect(await client.receive('failed upstream')).not.toContain('ngrok-error-code')
  })

  it('one connection to the service carries many exchanges', async () => {
    let connections = 0
    const service = await startService((_request, response) => response.end('ok'))
    service.on('connection', () => {
      connections += 1
    })
    const { port } = await openTunnel(service.port)
    const agent = new Agent({ keepAlive: true, maxSockets: 1 })
    onTestFinished(() => agent.destroy())
    for (let round = 0; round < 50; round += 1) expect(await visit(port, '/', agent)).toBe(200)
    expect(connections).toBe(1)
  })

  it('a WebSocket works in both directions', async () => {
    const service = new WebSocketServer({ port: 0, host: '127.0.0.1' })
    await once(service, 'listening')
    onTestFinished(() => service.close())
    service.on('connection', (socket) => socket.on('message', (data) => socket.send(data)))
    const { port } = await openTunnel((service.address() as AddressInfo).port)
    const client = new WebSocket(`ws://127.0.0.1:${port}/`, { headers: { host: HOST } })
    await once(client, 'open')
    client.send(Buffer.alloc(1_000_000, 'x'))
    const [echo] = await once(client, 'message')
    expect((echo as Buffer).length).toBe(1_000_000)
    client.close()
    await once(client, 'close')
  })

  it('who comes while a tunnel opens finds none yet, or one that works', async () => {
    const service = await startService((_request, response) => response.end('ok'))
    const running = await startGateway()
    const sdk = await connectSdk(running)
    const { port } = running.addresses.http
    const firstAnswer = async () => {
      for (;;) {
        const status = await visit(port)
        if (status !== 404) return status
      }
    }
    for (let round = 0; round < 30; round += 1) {
      const visits = Array.from({ length: 10 }, firstAnswer)
      const listener = await inTime(sdk.httpEndpoint().domain(HOST).listen())
      listener.forward(`http://127.0.0.1:${service.port}`).catch(() => {})
      expect(await visit(port), 'after the bind').toBe(200)
      expect(new Set(await Promise.all(visits))).toEqual(new Set([200]))
      await inTime(listener.close())
    }
  })

  it('600 clients at once get 600 answers through one session', async () => {
    const service = await startService((_request, response) => {
      setTimeout(() => response.end('ok'), 300)
    })
    const { port, endpoint } = await openTunnel(service.port)
    const agent = new Agent({ maxSockets: Number.POSITIVE_INFINITY })
    const statuses = await Promise.all(Array.from({ length: 600 }, () => visit(port, '/', agent)))
    expect(statuses.filter((status) => status === 200)).toHaveLength(600)
    expect(endpoint.traffic).toMatchObject({ requests: 600, refused: 0 })
  })

  it('aborted polls and stalled transfers hold nobody up and leave no slot behind', async () => {
    const polls = new Set<Socket>()
    const service = await startService((incoming, response) => {
      if (incoming.url === '/quick') {
        response.end('ok')
      } else if (incoming.url === '/poll') {
        polls.add(incoming.socket)
        incoming.socket.once('close', () => polls.delete(incoming.socket))
      } else if (incoming.url === '/download') {
        response.write(Buffer.alloc(16 * 1_048_576))
      } else {
        incoming.pause()
      }
    })
    const { port, endpoint } = await openTunnel(service.port)
    await visitQuickly(300, port)
    const { freeSlots } = endpoint.streams

    for (let round = 0; round < 3; round += 1) {
      const clients = Array.from({ length: 200 }, () => RawClient.connect(port))
      for (const client of clients) client.send(GET.replace(' / ', ' /poll '))
      await eventually(() => expect(polls.size).toBe(200))
      for (const client of clients) client.socket.destroy()
      await eventually(() => expect(polls.size).toBe(0))
    }
    await eventually(() => expect(endpoint.streams.freeSlots).toBeGreaterThanOrEqual(freeSlots))

    const stalled = Array.from({ length: 20 }, () => {
      const reader = RawClient.connect(port)
      reader.socket.pause()
      reader.send(GET.replace(' / ', ' /download '))
      const writer = request({ port, method: 'POST', path: '/upload', headers: { host: HOST } })
      writer.on('error', () => {})
      writer.write(Buffer.alloc(4 * 1_048_576))
      return { reader, writer }
    })
    await eventually(() => expect(endpoint.streams.freeSlots).toBeLessThanOrEqual(448 - 40))
    await settled(() => endpoint.traffic.bytesIn)
    for (let round = 0; round < 5; round += 1) await visitQuickly(300, port)
    // None of those has ended meanwhile.
    expect(endpoint.streams.freeSlots).toBeLessThanOrEqual(448 - 40)

    for (const { reader, writer } of stalled) {
      reader.socket.destroy()
      writer.destroy()
    }
    await eventually(() =>
      expect(endpoint.streams.freeSlots).toBeGreaterThanOrEqual(freeSlots - 20),
    )
    // The SDK hangs in its write to a service that does not read, and hears nothing until it ends.
    service.closeAllConnections()
    await eventually(() => expect(endpoint.streams.freeSlots).toBeGreaterThanOrEqual(freeSlots))
    expect(await visit(port, '/quick')).toBe(200)
  })
})
