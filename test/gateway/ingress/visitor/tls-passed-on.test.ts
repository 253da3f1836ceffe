import { createHash, randomBytes } from 'node:crypto'
import { once } from 'node:events'
import type { Socket } from 'node:net'
import { describe, expect, it } from 'vitest'
import type { AgentEndpoint } from '../../../../src/gateway/endpoints/endpoint.ts'
import { capturedHello } from '../../../helpers/client-hello.ts'
import { eventually } from '../../../helpers/eventually.ts'
import { ManualClock } from '../../../helpers/manual-clock.ts'
import { publicRequest } from '../../../helpers/public-request.ts'
import {
  bind,
  connectSdk,
  GATEWAY_DEFAULTS,
  type RunningGateway,
  sdkCode,
  startGateway,
} from '../../../helpers/running-gateway.ts'
import { readAll, startTcpService } from '../../../helpers/tcp-site.ts'
import { bindTls, startTlsService, visitRaw, visitTls } from '../../../helpers/tls-site.ts'

const HOST = 'cam.site.test'
const MIB = 1_048_576
const echo = (socket: Socket) => socket.pipe(socket)
const endpointOf = ({ gateway }: RunningGateway, host = HOST) =>
  gateway.parts.registry.match(host, 'tls') as AgentEndpoint

/** What a visitor without TLS of its own gets for the bytes that it sends. */
async function answerTo(running: RunningGateway, ...pieces: Buffer[]): Promise<string> {
  const visitor = visitRaw(running)
  for (const piece of pieces) visitor.write(piece)
  visitor.end()
  return readAll(visitor)
}

describe('a TLS endpoint of the SDK', () => {
  it('leads to the device, which alone can read what passes by', async () => {
    const running = await startGateway()
    const session = await connectSdk(running)
    const service = await startTlsService(echo)
    const listener = await bindTls(session, { domain: HOST, to: service.port })
    expect(listener.url()).toBe(`tls://${HOST}:${running.addresses.https.port}`)
    expect(listener.proto()).toBe('tls')
    const visitor = visitTls(running, HOST, { ca: service.caPem })
    visitor.end('hello')
    expect(await readAll(visitor)).toBe('hello')
    expect(visitor.authorizationError).toBeNull()
    await eventually(() => {
      const { traffic, streams } = endpointOf(running)
      expect([traffic.requests, traffic.active, streams.holding.held]).toEqual([1, 0, 0])
      expect(traffic.outcomes.counts).toMatchObject({ answered: 1 })
    })
  })

  it.each([
    ['in one piece', (hello: Buffer) => [hello]],
    ['byte by byte', (hello: Buffer) => Array.from(hello, (byte) => Buffer.from([byte]))],
  ])('gets a first message %s as it came', async (_how, split) => {
    const running = await startGateway()
    const session = await connectSdk(running)
    const { port } = await startTcpService(echo)
    await bindTls(session, { domain: HOST, to: port })
    const sent = Buffer.concat([await capturedHello(HOST), randomBytes(3_000)])
    const visitor = visitRaw(running)
    visitor.setNoDelay(true)
    for (const piece of split(sent.subarray(0, -3_000))) {
      visitor.write(piece)
      await new Promise((resolve) => setImmediate(resolve))
    }
    visitor.end(sent.subarray(-3_000))
    const received: Buffer[] = []
    visitor.on('data', (chunk: Buffer) => received.push(chunk))
    await once(visitor, 'end')
    expect(Buffer.concat(received).equals(sent)).toBe(true)
  })

  it('carries bytes both ways intact', async () => {
    const running = await startGateway()
    const session = await connectSdk(running)
    const service = await startTlsService(echo)
    await bindTls(session, { domain: HOST, to: service.port })
    const visitor = visitTls(running, HOST, { ca: service.caPem })
    const [sent, received] = [createHash('sha256'), createHash('sha256')]
    let bytes = 0
    visitor.on('data', (chunk) => {
      received.update(chunk)
      bytes += chunk.length
    })
    const ended = once(visitor, 'end')
    for (let part = 0; part < 16; part += 1) {
      const chunk = randomBytes(MIB)
      sent.update(chunk)
      if (!visitor.write(chunk)) await once(visitor, 'drain')
    }
    visitor.end()
    await ended
    expect(bytes).toBe(16 * MIB)
    expect(received.digest('hex')).toBe(sent.digest('hex'))
  })

  it('keeps a connection half-open, whichever side ends first', async () => {
    const running = await startGateway()
    const session = await connectSdk(running)
    const hello = await capturedHello(HOST)
    const talker = await startTcpService((socket) => socket.end('all I have to say'))
    await bindTls(session, { domain: HOST, to: talker.port })
    const first = visitRaw(running)
    first.write(hello)
    expect(await readAll(first)).toBe('all I have to say')
    first.end('and all I have')
    await eventually(async () => expect(talker.sockets).toHaveLength(1))
    expect(await readAll(talker.sockets[0] as Socket)).toBe(`${hello}and all I have`)
    const listener = await startTcpService((socket) => {
      void readAll(socket).then((text) => socket.end(`heard ${text.length}`))
    })
    const other = 'other.site.test'
    await bindTls(session, { domain: other, to: listener.port })
    const otherHello = await capturedHello(other)
    expect(await answerTo(running, otherHello, Buffer.from('this'))).toBe(
      `heard ${`${otherHello}this`.length}`,
    )
  })

  it('has the names below its wildcard, and a random one for who asks for none', async () => {
    const running = await startGateway()
    const session = await connectSdk(running)
    const service = await startTlsService(echo)
    await running.gateway.parts.registrar.reserve({ domain: '*.deep.site.test' })
    await bindTls(session, { domain: '*.deep.site.test', to: service.port })
    const drawn = await bindTls(session, { to: service.port })
    const names = ['a.deep.site.test', new URL(drawn.url() ?? '').hostname]
    for (const name of names) {
      const visitor = visitTls(running, name, { ca: service.caPem })
      visitor.end(name)
      expect(await readAll(visitor)).toBe(name)
    }
  })

  it('is closed for a visitor whose service takes no connection, and that is counted', async () => {
    const running = await startGateway()
    const session = await connectSdk(running)
    const { port, server } = await startTcpService(echo)
    server.close()
    await once(server, 'close')
    await bindTls(session, { domain: HOST, to: port })
    const visitor = visitRaw(running)
    visitor.write(await capturedHello(HOST))
    expect(await readAll(visitor)).toBe('')
    visitor.end()
    await eventually(() => {
      const { traffic, streams } = endpointOf(running)
      expect(traffic.outcomes.counts).toMatchObject({ unreachable: 1, answered: 0 })
      expect(traffic.errors.get('ERR_NGROK_8012')).toBe(1)
      expect(streams.holding.held).toBe(0)
    })
  })

  it('closes a connection that is silent for too long', async () => {
    const clock = new ManualClock(Date.now())
    const running = await startGateway({
      clock,
      timeouts: { ...GATEWAY_DEFAULTS.timeouts, tcpIdleMs: 5_000 },
    })
    const session = await connectSdk(running)
    const service = await startTlsService(echo)
    await bindTls(session, { domain: HOST, to: service.port })
    const visitor = visitTls(running, HOST, { ca: service.caPem })
    visitor.write('hello')
    expect(String((await once(visitor, 'data'))[0])).toBe('hello')
    await clock.advance(4_000)
    const rest = readAll(visitor)
    expect(visitor.destroyed).toBe(false)
    await clock.advance(3_000)
    expect(await rest).toBe('broken')
  })

  it('obeys on_tcp_connect before the device is asked', async () => {
    const running = await startGateway()
    const session = await connectSdk(running)
    const { port, sockets } = await startTcpService(echo)
    const expressions = [`endpoint.protocol == 'tls' && endpoint.host == '${HOST}'`]
    const policy = { on_tcp_connect: [{ expressions, actions: [{ type: 'deny' }] }] }
    await bindTls(session, { domain: HOST, to: port, policy })
    expect(await answerTo(running, await capturedHello(HOST))).toBe('broken')
    expect(sockets).toHaveLength(0)
    expect(endpointOf(running).traffic.refused).toBe(1)
  })

  it('is refused for what nobody can do to a connection', async () => {
    const session = await connectSdk(await startGateway())
    const policy = { on_http_request: [{ actions: [{ type: 'deny' }] }] }
    expect(await sdkCode(bindTls(session, { domain: HOST, policy }))).toBe('ERR_NGROK_9026')
    expect(await sdkCode(bindTls(session, { domain: 'cam.elsewhere.test' }))).toBe('ERR_NGROK_316')
  })

  it('has its name alone at the secure listener', async () => {
    const running = await startGateway()
    const session = await connectSdk(running)
    await bindTls(session, { domain: HOST })
    expect(await sdkCode(bind(session, HOST))).toBe('ERR_NGROK_334')
    const plain = await session.httpEndpoint().scheme('http').domain(HOST).listen()
    expect(plain.url()).toMatch(/^http:/)
  })
})

describe('the secure listener beside TLS endpoints', () => {
  it.each(['other.site.test', undefined])('ends TLS for who names %s', async (name) => {
    const running = await startGateway()
    const session = await connectSdk(running)
    const { port, sockets } = await startTcpService(echo)
    await bindTls(session, { domain: HOST, to: port })
    await bind(session, 'other.site.test')
    const visitor = visitTls(running, name ?? '', { rejectUnauthorized: false })
    await once(visitor, 'secureConnect')
    visitor.end(`GET / HTTP/1.1\r\nhost: ${HOST}\r\nconnection: close\r\n\r\n`)
    expect(await readAll(visitor)).toMatch(/^HTTP\/1\.1 421 .*ERR_GATEWAY_MISDIRECTED/s)
    expect(sockets).toHaveLength(0)
  })

  it('serves HTTP of every version that is agreed on, byte by byte too', async () => {
    const running = await startGateway()
    const session = await connectSdk(running)
    await bindTls(session, { domain: HOST })
    for (const [offered, agreed] of [
      [['http/1.0'], 'http/1.0'],
      [['http/1.1'], 'http/1.1'],
      [['h2', 'http/1.1'], 'h2'],
      [[], false],
    ] as const) {
      const visitor = visitTls(running, 'other.site.test', {
        rejectUnauthorized: false,
        ...(offered.length > 0 && { ALPNProtocols: [...offered] }),
      })
      await once(visitor, 'secureConnect')
      expect(visitor.alpnProtocol).toBe(agreed)
      visitor.destroy()
    }
  })
})

describe('a TLS name whose device is away', () => {
  const metadata = '{"device_id":"press"}'

  it('is its own when it comes back, and visitors wait for it', async () => {
    const running = await startGateway()
    const service = await startTlsService(echo)
    await bindTls(await connectSdk(running, { metadata }), { domain: HOST, to: service.port })
    const { sessions, registry } = running.gateway.parts
    for (const session of [...sessions.all()]) session.end('the link broke')
    const visitor = visitTls(running, HOST, { ca: service.caPem })
    visitor.end('are you there')
    await eventually(() => expect(registry.held.size).toBe(1))
    expect(registry.held.bytes).toBeGreaterThan(16_384)
    const again = await connectSdk(running, { metadata })
    await bindTls(again, { domain: HOST, to: service.port })
    expect(await readAll(visitor)).toBe('are you there')
    expect(registry.held.size).toBe(0)
  })

  it('is closed for who has waited as long as visitors wait, and who leaves waits no more', async () => {
    const clock = new ManualClock(Date.now())
    const running = await startGateway({ clock, holdMs: 300 })
    await bindTls(await connectSdk(running, { metadata }), { domain: HOST })
    const { sessions, registry } = running.gateway.parts
    for (const session of [...sessions.all()]) session.end('the link broke')
    const impatient = visitRaw(running)
    impatient.write(await capturedHello(HOST))
    await eventually(() => expect(registry.held.size).toBe(1))
    impatient.resetAndDestroy()
    await eventually(() => expect(registry.held.size).toBe(0))
    const answer = answerTo(running, await capturedHello(HOST))
    await eventually(() => expect(registry.held.size).toBe(1))
    await clock.advance(2_000)
    expect(await answer).toBe('broken')
    expect(registry.held.size).toBe(0)
  })

  it('stays its own over a restart of the gateway', async () => {
    const running = await startGateway()
    const service = await startTlsService(echo)
    await bindTls(await connectSdk(running, { metadata }), { domain: HOST, to: service.port })
    await running.gateway.stop()
    const { dataDir, authtoken } = running
    const next = await startGateway({ dataDir, authtoken })
    const visitor = visitTls(next, HOST, { ca: service.caPem })
    visitor.end('after a restart')
    await eventually(() => expect(next.gateway.parts.registry.held.size).toBe(1))
    const again = await connectSdk(next, { metadata })
    await bindTls(again, { domain: HOST, to: service.port })
    expect(await readAll(visitor)).toBe('after a restart')
  })

  it('is taken over without a gap, and open connections end where they are', async () => {
    const running = await startGateway()
    const [before, after] = [
      await startTlsService((socket) => socket.write('old')),
      await startTlsService((socket) => socket.end('new')),
    ]
    const session = await connectSdk(running, { metadata })
    await bindTls(session, { domain: HOST, to: before.port })
    const open = visitTls(running, HOST, { ca: before.caPem })
    const [first] = (await once(open, 'data')) as [Buffer]
    expect(first.toString()).toBe('old')
    await bindTls(session, { domain: HOST, to: after.port })
    expect(await readAll(visitTls(running, HOST, { ca: after.caPem }))).toBe('new')
    expect(open.destroyed).toBe(false)
  })
})

describe('greedy visitors of a TLS endpoint', () => {
  it('leave streams for others, and give them back', async () => {
    const running = await startGateway({ leastRate: 0 })
    const session = await connectSdk(running)
    const { port } = await startTcpService(echo)
    await bindTls(session, { domain: HOST, to: port })
    const { streams, traffic } = endpointOf(running)
    const hello = await capturedHello(HOST)
    const greedy: Socket[] = []
    for (let at = 0; at < 460; at += 1) {
      const socket = visitRaw(running)
      socket.write(hello)
      greedy.push(socket)
    }
    await eventually(() => expect(streams.holding.held + streams.holding.waiting).toBe(460))
    expect(streams.slots.available).toBe(streams.slots.reserved)
    const own = session.httpEndpoint().domain('agent.site.test')
    await own.listenAndForward(`http://127.0.0.1:${port}`)
    const answer = await publicRequest({
      ingress: `http://127.0.0.1:${running.addresses.http.port}`,
      host: 'agent.site.test',
    }).catch((error: Error) => error)
    // An echo is no HTTP response: the request has been to the device and back.
    expect(JSON.stringify(answer)).toMatch(/3004|502/)
    for (const socket of greedy) socket.destroy()
    await eventually(() => expect([traffic.active, streams.holding.held]).toEqual([0, 0]))
  })
})
