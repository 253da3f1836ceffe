import { once } from 'node:events'
import type { AddressInfo, Socket } from 'node:net'
import { describe, expect, it, onTestFinished } from 'vitest'
import { WebSocket, WebSocketServer } from 'ws'
import { eventually } from '../../../helpers/eventually.ts'
import { startIngressSite } from '../../../helpers/ingress-site.ts'
import { ManualClock } from '../../../helpers/manual-clock.ts'
import {
  fieldsOf,
  RawClient,
  startRawService,
  startScriptedService,
} from '../../../helpers/raw-http.ts'

const UPGRADE = 'GET / HTTP/1.1\r\nHost: a.test\r\nConnection: Upgrade\r\nUpgrade: raw\r\n\r\n'
const SWITCHING = 'HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: raw\r\n\r\n'

/** Answers the upgrade and keeps what comes behind it. */
async function startRawUpgrade(greeting = '') {
  const received: string[] = []
  const heads: string[] = []
  let socket: Socket | undefined
  let hasEnded = false
  const port = await startRawService((accepted) => {
    socket = accepted
    accepted.once('data', (head: Buffer) => {
      heads.push(String(head))
      accepted.write(SWITCHING + greeting)
      accepted.on('data', (chunk: Buffer) => received.push(String(chunk)))
    })
    accepted.on('end', () => {
      hasEnded = true
    })
  })
  return { port, received, heads, socket: () => socket, hasEnded: () => hasEnded }
}

describe('an upgrade', () => {
  it('carries a WebSocket conversation, binary and large messages too', async () => {
    const server = new WebSocketServer({ port: 0, host: '127.0.0.1' })
    await once(server, 'listening')
    onTestFinished(() => server.close())
    server.on('connection', (socket) => {
      socket.on('message', (data, isBinary) => socket.send(data, { binary: isBinary }))
    })
    const site = await startIngressSite({ service: (server.address() as AddressInfo).port })
    const free = site.session.freeSlots
    const client = new WebSocket(`ws://127.0.0.1:${site.addresses.http.port}/chat`, {
      headers: { host: 'a.test' },
    })
    const messages: Buffer[] = []
    client.on('message', (data: Buffer) => messages.push(data))
    await once(client, 'open')
    expect(site.endpoint.traffic.active).toBe(1)
    const large = Buffer.alloc(1_500_000, 'large')
    client.send('hello')
    client.send(large)
    await eventually(() => expect(messages).toHaveLength(2))
    expect(String(messages[0])).toBe('hello')
    expect(messages[1]?.equals(large)).toBe(true)
    client.close(1_000, 'bye')
    const [code, reason] = await once(client, 'close')
    expect([code, String(reason)]).toEqual([1_000, 'bye'])
    await eventually(() => expect(site.session.freeSlots).toBe(free))
    expect(site.endpoint.traffic.active).toBe(0)
    expect(site.endpoint.traffic.bytesOut).toBeGreaterThan(large.length)
  })

  it('passes early bytes of both sides on, and each end by itself', async () => {
    const service = await startRawUpgrade('welcome')
    const site = await startIngressSite({ service: service.port })
    const client = RawClient.connect(site.addresses.http.port)
    client.send(`${UPGRADE}early`)
    expect(await client.receive('welcome')).toBe(
      'HTTP/1.1 101 Switching Protocols\r\nconnection: Upgrade\r\nUpgrade: raw\r\n\r\nwelcome',
    )
    expect(fieldsOf(service.heads[0] ?? '')).toMatchObject({
      connection: 'Upgrade',
      upgrade: 'raw',
    })
    await eventually(() => expect(service.received.join('')).toBe('early'))
    client.socket.end('last')
    await eventually(() => expect(service.hasEnded()).toBe(true))
    expect(service.received.join('')).toBe('earlylast')
    service.socket()?.end('reply')
    expect(await client.receive('reply')).toMatch(/welcomereply$/)
    expect(await client.end()).toBe('end')
  })

  it('ends the stream when the client is gone', async () => {
    const service = await startRawUpgrade('welcome')
    const site = await startIngressSite({ service: service.port })
    const free = site.session.freeSlots
    const client = RawClient.connect(site.addresses.http.port)
    client.send(UPGRADE)
    await client.receive('welcome')
    client.socket.resetAndDestroy()
    await eventually(() => expect(service.hasEnded()).toBe(true))
    service.socket()?.end()
    await eventually(() => expect(site.session.freeSlots).toBe(free))
  })

  it('stops a writer whose reader does not keep up', async () => {
    const service = await startRawUpgrade('welcome')
    const site = await startIngressSite({ service: service.port })
    const client = RawClient.connect(site.addresses.http.port)
    client.send(UPGRADE)
    await client.receive('welcome')
    client.socket.pause()
    const total = 16 * 1_048_576
    service.socket()?.write(Buffer.alloc(total, 'x'))
    await new Promise((resolve) => setTimeout(resolve, 300))
    expect(site.endpoint.traffic.bytesOut).toBeLessThan(total)
    client.socket.resume()
    await eventually(() => expect(site.endpoint.traffic.bytesOut).toBeGreaterThan(total))
    await eventually(() => expect(client.length).toBeGreaterThan(total))
  })

  it('that the service declines is an exchange like any other', async () => {
    const service = await startScriptedService(
      'HTTP/1.1 426 Upgrade Required\r\nContent-Length: 2\r\n\r\nno',
      'HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok',
    )
    const site = await startIngressSite({ service: service.port })
    const client = RawClient.connect(site.addresses.http.port)
    client.send(UPGRADE)
    await client.receive('no')
    client.send('GET / HTTP/1.1\r\nHost: a.test\r\n\r\n')
    expect(await client.receive('ok')).toContain('200 OK')
  })

  it.each([
    ['to HTTP/2', 'Connection: Upgrade, HTTP2-Settings\r\nUpgrade: h2c\r\nHTTP2-Settings: AA\r\n'],
    ['to HTTP under TLS', 'Connection: Upgrade\r\nUpgrade: TLS/1.2, HTTP/1.1\r\n'],
    ['to HTTP by its name', 'Connection: Upgrade\r\nUpgrade: http/2.0\r\n'],
    ['that Connection does not name', 'Upgrade: raw\r\n'],
    ['to HTTP/2 behind a body', 'Connection: Upgrade\r\nUpgrade: h2c\r\nContent-Length: 2\r\n'],
  ])('%s is not asked for', async (_what, fields) => {
    const service = await startScriptedService('HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok')
    const site = await startIngressSite({ service: service.port })
    const client = RawClient.connect(site.addresses.http.port)
    client.send(`GET / HTTP/1.1\r\nHost: a.test\r\n${fields}\r\nhi`)
    await client.receive('ok')
    const sent = fieldsOf(service.requests[0] ?? '')
    expect(sent).not.toHaveProperty('upgrade')
    expect(sent).not.toHaveProperty('connection')
    expect(sent).not.toHaveProperty('http2-settings')
  })

  it.each(['h2c', 'HTTP/1.1', 'TLS/1.2, HTTP/1.1'])(
    'is not made to %s by a service that was asked for another protocol',
    async (protocol) => {
      const service = await startScriptedService(SWITCHING.replace('raw', protocol))
      const site = await startIngressSite({ service: service.port })
      const client = RawClient.connect(site.addresses.http.port)
      client.send(UPGRADE)
      expect(await client.receive('\r\n\r\n')).toMatch(/^HTTP\/1.1 502 /)
    },
  )

  it('ends when it was silent for as long as it may be, and at once when the ingress stops', async () => {
    const clock = new ManualClock()
    const service = await startRawUpgrade('welcome')
    const limits = { idleMs: 600_000, silenceMs: 60_000 }
    const site = await startIngressSite({ service: service.port, clock, limits })
    const [silent, lively] = [0, 1].map(() => RawClient.connect(site.addresses.http.port))
    for (const client of [silent, lively]) {
      client?.send(UPGRADE)
      await client?.receive('welcome')
    }
    for (let minute = 0; minute < 11; minute += 1) {
      if (minute === 9) expect(silent?.ending).toBeUndefined()
      lively?.send('ping')
      await eventually(() => expect(service.received.join('')).toBe('ping'.repeat(minute + 1)))
      await clock.advance(60_000)
    }
    expect(await silent?.end()).toBe('ECONNRESET')
    expect(lively?.ending).toBeUndefined()
    const stopped = site.ingress.stop(60_000)
    await lively?.end()
    await clock.advance(1_000)
    await stopped
  })
})

describe('an upgrade with a body', () => {
  const HEAD = 'POST /exec HTTP/1.1\r\nHost: a.test\r\nConnection: Upgrade\r\nUpgrade: tcp\r\n'

  it.each([
    ['a length', 'Content-Length: 13\r\n\r\n', '{"Tty":false}'],
    ['chunks', 'Transfer-Encoding: chunked\r\n\r\n', 'd\r\n{"Tty":false}\r\n0\r\n\r\n'],
  ])('of %s switches behind it', async (_what, framing, body) => {
    let received = ''
    const port = await startRawService((socket) => {
      socket.on('data', (chunk: Buffer) => {
        received += chunk
        if (received.endsWith(body)) socket.write(`${SWITCHING}hello`)
        if (received.endsWith('more')) socket.write(' and more')
      })
    })
    const site = await startIngressSite({ service: port })
    const client = RawClient.connect(site.addresses.http.port)
    client.send(HEAD + framing + body.slice(0, 5))
    client.send(body.slice(5))
    expect(await client.receive('hello')).toMatch(/^HTTP\/1\.1 101 /)
    client.send('more')
    expect(await client.receive('and more')).toMatch(/hello and more$/)
    expect(received).toMatch(/\r\nupgrade: tcp\r\n/i)
    expect(received.endsWith(`${body}more`)).toBe(true)
  })

  it('goes on without a switch, and the connection takes another request', async () => {
    const { port } = await startScriptedService('HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok')
    const site = await startIngressSite({ service: port })
    const client = RawClient.connect(site.addresses.http.port)
    const request = `${HEAD}Content-Length: 2\r\n\r\nhi`
    client.send(request + request)
    await eventually(() => expect(client.text.match(/200 OK/g)).toHaveLength(2))
  })

  it('is 502 when the service switches before it has the body', async () => {
    const port = await startRawService((socket) =>
      socket.once('data', () => socket.write(SWITCHING)),
    )
    const site = await startIngressSite({ service: port })
    const client = RawClient.connect(site.addresses.http.port)
    client.send(`${HEAD}Content-Length: 10\r\n\r\nhalf`)
    expect(await client.receive('\r\n\r\n')).toMatch(/^HTTP\/1\.1 502 /)
  })
})
