import { once } from 'node:events'
import { connect as connectHttp2 } from 'node:http2'
import type { Socket } from 'node:net'
import { connect as connectTls } from 'node:tls'
import { describe, expect, it, onTestFinished } from 'vitest'
import { WebSocket } from 'ws'
import type { AgentEndpoint } from '../../../../src/gateway/endpoints/endpoint.ts'
import { eventually } from '../../../helpers/eventually.ts'
import { turns } from '../../../helpers/frame-peer.ts'
import { publicRequest } from '../../../helpers/public-request.ts'
import {
  connectSdk,
  inTime,
  type RunningGateway,
  startGateway,
} from '../../../helpers/running-gateway.ts'
import { startTcpService } from '../../../helpers/tcp-site.ts'
import { clientFrame, serverFrames } from '../../../helpers/websocket-frames.ts'
import { startHandSite } from '../hand-device.ts'

const HOST = 'cam.site.test'
const echo = (socket: Socket) => socket.pipe(socket)
const endpointOf = ({ gateway }: RunningGateway) =>
  gateway.parts.registry.match(HOST) as AgentEndpoint

/** An endpoint of the SDK whose visitors speak WebSocket, before a TCP service. */
async function startSite(
  serve: (socket: Socket) => unknown,
  { to = 'http', policy }: { to?: 'http' | 'tcp'; policy?: object } = {},
) {
  const running = await startGateway()
  const service = await startTcpService(serve)
  await bind(running, `${to}://127.0.0.1:${service.port}`, policy)
  return { running, service }
}

async function bind(running: RunningGateway, to: string, policy?: object) {
  const session = await connectSdk(running)
  const builder = session.httpEndpoint().domain(HOST).websocketTcpConversion()
  if (policy) builder.trafficPolicy(JSON.stringify(policy))
  await inTime(builder.listenAndForward(to), 'bind')
}

/** A visitor with the binary messages that it has got, as one piece. */
function visit({ addresses }: RunningGateway, protocols: string[] = [], host = HOST) {
  const { port } = addresses.http
  const client = new WebSocket(`ws://127.0.0.1:${port}/`, protocols, { headers: { host } })
  const messages: Buffer[] = []
  client.on('message', (data: Buffer, isBinary) => {
    expect(isBinary).toBe(true)
    messages.push(data)
  })
  client.on('error', () => {})
  onTestFinished(() => client.terminate())
  const closed = new Promise<string>((resolve) => {
    client.once('close', (code, reason) => resolve(`${code} ${reason}`.trim()))
  })
  return { client, closed, text: () => String(Buffer.concat(messages)) }
}

async function open(running: RunningGateway, protocols?: string[]) {
  const visitor = visit(running, protocols)
  await once(visitor.client, 'open')
  return visitor
}

describe('an endpoint behind a WebSocket', () => {
  it('gives a TCP service the content of messages, and the visitor what the service says', async () => {
    const { running, service } = await startSite(echo)
    const { client, closed, text } = await open(running)
    client.send(Buffer.from('SSH-2.0 '))
    client.send('in ', { binary: true, fin: false })
    client.send('parts', { binary: true })
    await eventually(() => expect(text()).toBe('SSH-2.0 in parts'))
    expect(service.sockets).toHaveLength(1)
    client.close(1_000)
    expect(await closed).toBe('1000')
    await eventually(() => {
      const { traffic, streams } = endpointOf(running)
      expect([traffic.requests, traffic.active, traffic.refused]).toEqual([1, 0, 0])
      expect([...streams.busy]).toEqual([])
    })
  })

  it('carries ten megabytes both ways intact', async () => {
    const { running } = await startSite(echo)
    const visitor = await open(running)
    const sent = Buffer.from(
      Uint32Array.from({ length: 2_500_000 }, (_, n) => n * 2_654_435_761).buffer,
    )
    for (let at = 0; at < sent.length; at += 1_000_001) {
      visitor.client.send(sent.subarray(at, at + 1_000_001))
    }
    let bytes = 0
    const parts: Buffer[] = []
    visitor.client.on('message', (part: Buffer) => {
      parts.push(part)
      bytes += part.length
    })
    await eventually(() => expect(bytes).toBe(sent.length))
    expect(Buffer.concat(parts).equals(sent)).toBe(true)
  })

  it('answers pings itself, and takes the first subprotocol that is offered', async () => {
    const { running } = await startSite(echo)
    const { client, text } = await open(running, ['mqtt', 'binary'])
    expect(client.protocol).toBe('mqtt')
    client.ping('are you there')
    const [answer] = await once(client, 'pong')
    expect(String(answer)).toBe('are you there')
    client.send(Buffer.from('hello'))
    await eventually(() => expect(text()).toBe('hello'))
  })

  it('closes when the service does, behind all that it has said', async () => {
    const { running } = await startSite((socket) => socket.end('all I have to say'))
    const visitor = visit(running)
    expect(await visitor.closed).toBe('1000')
    expect(visitor.text()).toBe('all I have to say')
  })

  it.each([
    ['http', 'SSH-2.0-visitor\r\n'],
    ['tcp', 'SSH-2.0-visitor\r\n'],
    ['http', 'GET / HTTP/1.1\r\nhost: a\r\n\r\n'],
  ])('says that nobody is behind %s who could hear %j', async (to, said) => {
    const running = await startGateway()
    await bind(running, `${to}://127.0.0.1:1`)
    const { client, closed, text } = await open(running)
    // The SDK waits for something that it can answer.
    client.send(Buffer.from(said))
    expect(await closed).toBe('1011 the upstream cannot be reached')
    expect(text()).toBe('')
    const { traffic } = endpointOf(running)
    expect(Object.fromEntries(traffic.errors)).toEqual({ ERR_NGROK_8012: 1 })
    expect(traffic.outcomes.counts).toMatchObject({ answered: 0, unreachable: 1 })
  })

  it('passes on what only begins like the answer of the SDK', async () => {
    const { running } = await startSite((socket) => socket.end('HTTP/1.1 502 it is, by itself'))
    const visitor = visit(running)
    expect(await visitor.closed).toBe('1000')
    expect(visitor.text()).toBe('HTTP/1.1 502 it is, by itself')
  })

  it('takes no text, and nothing that is no WebSocket', async () => {
    const { running, service } = await startSite(echo)
    const { client, closed } = await open(running)
    // The SDK connects in its own time, which may be after the visitor is here.
    await eventually(() => expect(service.sockets).toHaveLength(1))
    client.send('text')
    expect(await closed).toBe('1003 only binary messages are supported')
    const ingress = `http://127.0.0.1:${running.addresses.http.port}`
    const { status, headers } = await publicRequest({ ingress, host: HOST })
    expect([status, headers['ngrok-error-code'], headers['sec-websocket-version']]).toEqual([
      400,
      'ERR_NGROK_3206',
      '13',
    ])
    expect(service.sockets).toHaveLength(1)
  })

  it('is behind the policy as any other', async () => {
    const rule = { expressions: ["req.url.path == '/'"], actions: [{ type: 'deny' }] }
    const { running } = await startSite(echo, { policy: { on_http_request: [rule] } })
    const { client } = visit(running)
    const [, { statusCode }] = await once(client, 'unexpected-response')
    expect(statusCode).toBe(403)
  })

  it('is found by HTTP/2, too', async () => {
    const { running } = await startSite(echo)
    const socket = connectTls({
      ...running.addresses.https,
      servername: HOST,
      rejectUnauthorized: false,
      ALPNProtocols: ['h2'],
    })
    const session = connectHttp2(`https://${HOST}`, { createConnection: () => socket })
    onTestFinished(() => session.destroy())
    await eventually(() => expect(session.remoteSettings.enableConnectProtocol).toBe(true))
    const stream = session.request({
      ':method': 'CONNECT',
      ':protocol': 'websocket',
      ':authority': HOST,
      ':path': '/',
      'sec-websocket-version': '13',
    })
    const got: Buffer[] = []
    stream.on('data', (chunk: Buffer) => got.push(chunk))
    const [headers] = await once(stream, 'response')
    expect(headers[':status']).toBe(200)
    stream.write(clientFrame(2, Buffer.from('hello')))
    await eventually(() => expect(Buffer.concat(got).toString('latin1')).toBe('\x82\x05hello'))
    const bye = Buffer.from([0x03, 0xe8])
    stream.end(clientFrame(8, bye))
    await once(stream, 'close')
    expect(Buffer.concat(got).subarray(7)).toEqual(Buffer.concat([Buffer.from([0x88, 2]), bye]))
    expect(stream.rstCode).toBe(0)
    await eventually(() => expect(endpointOf(running).traffic.active).toBe(0))
  })
})

describe('a WebSocket before a device that takes its time', () => {
  const KEY = 'Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\nSec-WebSocket-Version: 13\r\n'
  const GET = `GET / HTTP/1.1\r\nHost: a.test\r\nConnection: upgrade\r\nUpgrade: websocket\r\n${KEY}\r\n`

  async function opened() {
    const parts = await startHandSite()
    Object.assign(parts.site.endpoint, { isBehindWebSocket: true })
    const client = await parts.visit(GET)
    const begun = await parts.read(client)
    // RFC 6455 1.3.
    expect(begun).toMatch(
      /^HTTP\/1\.1 101 .*sec-websocket-accept: s3pPLMBiTxaQ9kYGzzhZRbK\+xOo=\r\n/s,
    )
    const heard = async () => (await parts.read(client)).slice(begun.length)
    const send = (opcode: number, content: string) =>
      client.send(clientFrame(opcode, Buffer.from(content)))
    return { ...parts, client, send, heard }
  }

  it('makes a visitor wait whose device takes no more', async () => {
    const { device, client, send } = await opened()
    device.isDeaf = true
    for (let at = 0; at < 20; at += 1) send(2, 'x'.repeat(50_000))
    await turns(50)
    expect(client.bytesRead).toBeLessThan(700_000)
    device.isDeaf = false
    device.last.listen()
    await turns(50)
    expect(device.last.text).toBe('x'.repeat(1_000_000))
  })

  it('waits for a visitor that does not read, and owes one that asks at all times one answer', async () => {
    const { device, site, client, send, heard } = await opened()
    const total = 1_000_000
    for (let at = 0; at < total; at += 50_000) device.last.send('x'.repeat(50_000))
    await turns(50)
    expect(site.endpoint.traffic.bytesOut).toBeLessThan(700_000)
    for (let at = 0; at < 500; at += 1) send(9, `ping ${at}`)
    await turns(50)
    expect(client.bytesRead).toBeGreaterThan(500 * 10)
    const frames = serverFrames(Buffer.from(await heard(), 'latin1'))
    const contentOf = (kind: number) =>
      String(Buffer.concat(frames.flatMap((it) => (it.opcode === kind ? [it.content] : []))))
    expect(contentOf(2)).toBe('x'.repeat(total))
    expect(contentOf(10)).toBe('ping 499')
  })

  it('ends after an hour of silence, in which a ping is a word', async () => {
    const { site, free, client, send, heard } = await opened()
    await site.advance(3_590_000)
    send(9, 'x')
    await turns()
    await site.advance(3_590_000)
    await heard()
    expect(client.ending).toBeUndefined()
    await site.advance(20_000)
    await heard()
    expect(client.ending).toBe('reset')
    expect(site.session.freeSlots).toBe(free)
  })

  it('is broken off with its device, and its device with what is no WebSocket', async () => {
    const first = await opened()
    first.device.last.reset()
    await first.heard()
    expect(first.client.ending).toBe('reset')
    const second = await opened()
    second.client.send('no frame')
    const { site, free } = second
    const said = Buffer.from(await second.heard(), 'latin1')
    expect([said[0], said.readUInt16BE(2)]).toEqual([0x88, 1_002])
    await site.advance(5_000)
    expect([site.session.freeSlots, site.endpoint.traffic.active]).toEqual([free, 0])
  })

  it('tells the device when the visitor leaves, with a word or without', async () => {
    for (const leave of ['close', 'end'] as const) {
      const { device, site, free, client, send, heard } = await opened()
      if (leave === 'close') send(8, '')
      client.finish()
      await turns()
      expect(device.last.isEnded).toBe(true)
      // In answer to a Close that has no code, or of the gateway when the service is done.
      expect(await heard()).toBe(leave === 'close' ? '\x88\x00' : '\x88\x02\x03\xe8')
      await site.advance(5_000)
      expect([site.session.freeSlots, site.endpoint.traffic.active]).toEqual([free, 0])
    }
  })

  it.each([
    ['another version', GET.replace('Version: 13', 'Version: 8')],
    ['no key', GET.replace(/Sec-WebSocket-Key.*\r\n/, '')],
    ['another protocol', GET.replace('websocket', 'raw')],
    ['another method', GET.replace('GET', 'PUT')],
  ])('is none with %s', async (_what, text) => {
    const { site, visit: visitSite, read, device } = await startHandSite()
    Object.assign(site.endpoint, { isBehindWebSocket: true })
    expect(await read(await visitSite(text))).toMatch(/^HTTP\/1\.1 400 .*ERR_NGROK_3206/s)
    expect(device.streams).toEqual([])
  })
})
