import { once } from 'node:events'
import { createServer, type IncomingMessage, type RequestListener } from 'node:http'
import { constants } from 'node:http2'
import { type AddressInfo, connect } from 'node:net'
import { connect as tlsConnect } from 'node:tls'
import { describe, expect, it, onTestFinished } from 'vitest'
import { eventually } from '../../../helpers/eventually.ts'
import { answerOf, connectHttp2, openStream } from '../../../helpers/http2-visitor.ts'
import {
  type IngressSiteOptions,
  isBehindNode,
  startIngressSite,
} from '../../../helpers/ingress-site.ts'
import { ManualClock } from '../../../helpers/manual-clock.ts'
import { startScriptedService } from '../../../helpers/raw-http.ts'

const REFUSED_STREAM = constants.NGHTTP2_REFUSED_STREAM
const OK = 'HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok'

async function siteOf(answers: string[], options: Partial<IngressSiteOptions> = {}) {
  const service = await startScriptedService(...answers)
  const site = await startIngressSite({ service: service.port, ...options })
  return { site, service, session: await connectHttp2(site) }
}

async function siteWith(listener: RequestListener, options: Partial<IngressSiteOptions> = {}) {
  const server = createServer(listener).listen(0, '127.0.0.1')
  await once(server, 'listening')
  onTestFinished(() => {
    server.closeAllConnections()
    server.close()
  })
  const service = (server.address() as AddressInfo).port
  const site = await startIngressSite({ service, ...options })
  return { site, session: await connectHttp2(site) }
}

async function bodyOf(request: IncomingMessage): Promise<Buffer> {
  const chunks: Buffer[] = []
  for await (const chunk of request) chunks.push(chunk as Buffer)
  return Buffer.concat(chunks)
}

describe('a visitor who speaks HTTP/2', () => {
  it.each([
    [['h2', 'http/1.1'], 'h2'],
    [['http/1.1', 'h2'], 'h2'],
    [['http/1.1'], 'http/1.1'],
    [['http/1.0'], 'http/1.0'],
    [undefined, false],
  ])('is asked for it by ALPN: %j gets %s', async (ALPNProtocols, agreed) => {
    const site = await startIngressSite({ service: 1 })
    const { port } = site.addresses.https
    const options = { host: '127.0.0.1', port, ca: site.caPem, servername: 'localhost' }
    const socket = tlsConnect({ ...options, ...(ALPNProtocols && { ALPNProtocols }) })
    onTestFinished(() => {
      socket.destroy()
    })
    await once(socket, 'secureConnect')
    expect(socket.alpnProtocol).toBe(agreed)
    if (agreed === 'h2') return
    socket.write(`GET / HTTP/${agreed === 'http/1.0' ? '1.0' : '1.1'}\r\nHost: no.test\r\n\r\n`)
    const [answer] = await once(socket, 'data')
    expect(String(answer)).toContain('HTTP/1.1 404')
  })

  it('reaches the device in HTTP/1.1, with who asked', async () => {
    const { service, session } = await siteOf([OK])
    const answer = await answerOf(
      openStream(session, { ':path': '/a?b=1', 'x-one': ['1', '2'], cookie: ['a=1', 'b=2'] }),
    )
    expect(answer).toMatchObject({ status: 200, code: 0 })
    expect(answer.body.toString()).toBe('ok')
    const [request = ''] = service.requests
    expect(request).toMatch(/^GET \/a\?b=1 HTTP\/1\.1\r\nHost: a\.test\r\n/)
    for (const line of [
      'X-One: 1',
      'X-One: 2',
      'x-forwarded-proto: https',
      'x-forwarded-host: a.test',
    ]) {
      expect(request).toContain(`\r\n${line}\r\n`)
    }
    expect(request.match(/^cookie: .*$/gim)).toEqual(['Cookie: a=1; b=2'])
    expect(request).not.toMatch(/transfer-encoding|connection:|content-length/i)
  })

  it.each(['POST', 'PUT', 'PATCH'])('says to the device that a %s is empty', async (method) => {
    const { service, session } = await siteOf([OK])
    expect(await answerOf(openStream(session, { ':method': method }))).toMatchObject({
      status: 200,
    })
    expect(service.requests[0]).toMatch(/\r\nContent-Length: 0\r\n/)
    expect(service.requests[0]).not.toMatch(/transfer-encoding/i)
  })

  it('has a hundred requests under way at a time', async () => {
    const { session } = await siteWith((request, response) => response.end(request.url))
    const streams = Array.from({ length: 100 }, (_, n) => openStream(session, { ':path': `/${n}` }))
    const answers = await Promise.all(streams.map(answerOf))
    expect(answers.map(({ body }) => body.toString())).toEqual(answers.map((_, n) => `/${n}`))
  })

  it.each([
    ['with a length', { 'content-length': 300_000 }],
    ['without a length', {}],
  ])('sends a body %s', async (_how, length) => {
    const { session } = await siteWith(async (request, response) => {
      const body = await bodyOf(request)
      response.end(
        JSON.stringify({ headers: request.headers, length: body.length, sum: sumOf(body) }),
      )
    })
    const content = Buffer.alloc(300_000, 'abcdefg')
    const stream = openStream(session, { ':method': 'POST', ...length }, false)
    stream.end(content)
    const told = JSON.parse((await answerOf(stream)).body.toString())
    expect(told).toMatchObject({ length: content.length, sum: sumOf(content) })
    expect(told.headers).toMatchObject(
      'content-length' in length
        ? { 'content-length': '300000' }
        : { 'transfer-encoding': 'chunked' },
    )
  })

  it('need not send the rest of a body that nobody reads, and goes on with the next', async () => {
    const { session } = await siteWith((_request, response) => response.end('no need'))
    const stream = openStream(session, { ':method': 'POST' }, false)
    stream.write('a part')
    // It never ends its body: that the answer is whole ends the stream, with NO_ERROR.
    const { status, body, code } = await answerOf(stream)
    expect([status, body.toString(), code]).toEqual([200, 'no need', 0])
    expect((await answerOf(openStream(session))).status).toBe(200)
  })

  it('may try again later where the gateway has its fill of requests, and has one in any case', async () => {
    const waiting: (() => void)[] = []
    const { site, session } = await siteWith(
      (_request, response) => waiting.push(() => response.end('done')),
      { limits: { http2Streams: 3 } },
    )
    const other = await connectHttp2(site)
    const crowd = Array.from({ length: 3 }, () => answerOf(openStream(session)))
    await eventually(() => expect(waiting).toHaveLength(3))
    const refused = await answerOf(openStream(session))
    expect([refused.status, refused.code]).toEqual([undefined, REFUSED_STREAM])
    const first = answerOf(openStream(other))
    await eventually(() => expect(waiting).toHaveLength(4))
    expect((await answerOf(openStream(other))).code).toBe(REFUSED_STREAM)
    for (const finish of waiting.splice(0)) finish()
    expect((await Promise.all([...crowd, first])).map(({ status }) => status)).toEqual(
      Array(4).fill(200),
    )
    // What was broken off does not count any more, either.
    const broken = openStream(session)
    await eventually(() => expect(waiting).toHaveLength(1))
    broken.close()
    await eventually(() => expect(site.endpoint.traffic.active).toBe(0))
    const again = Array.from({ length: 3 }, () => answerOf(openStream(session)))
    await eventually(() => expect(waiting).toHaveLength(4))
    for (const finish of waiting.splice(0)) finish()
    expect((await Promise.all(again)).map(({ status }) => status)).toEqual(Array(3).fill(200))
    // Nor does a connection that broke with all it had.
    const gone = Array.from({ length: 3 }, () => answerOf(openStream(session)))
    await eventually(() => expect(waiting).toHaveLength(3))
    session.destroy()
    await Promise.all(gone)
    await eventually(() => expect(site.endpoint.traffic.active).toBe(0))
    const rest = Array.from({ length: 3 }, () => answerOf(openStream(other)))
    await eventually(() => expect(waiting).toHaveLength(6))
    for (const finish of waiting) finish()
    expect((await Promise.all(rest)).map(({ status }) => status)).toEqual(Array(3).fill(200))
  })

  it('passes trailers both ways, but none that would be headers', async () => {
    const { session } = await siteWith(async (request, response) => {
      response.writeHead(200, { trailer: 'x-sum' })
      await bodyOf(request)
      response.write('content')
      response.addTrailers({ 'x-sum': JSON.stringify(request.trailers) })
      response.end()
    })
    const stream = session.request(
      { ':authority': 'a.test', ':method': 'POST', te: 'trailers' },
      { waitForTrailers: true },
    )
    stream.on('wantTrailers', () => stream.sendTrailers({ 'x-up': '1', authorization: 'late' }))
    stream.end('body')
    const { body, trailers, code } = await answerOf(stream)
    expect(body.toString()).toBe('content')
    expect(JSON.parse(String(trailers['x-sum']))).toEqual({ 'x-up': '1' })
    expect(code).toBe(0)
  })

  it('ends a chunked response that has no trailers', async () => {
    const { session } = await siteOf([
      'HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\nTrailer: x\r\n\r\n2\r\nok\r\n0\r\n\r\n',
    ])
    const { body, headers, code } = await answerOf(openStream(session, { te: 'trailers' }))
    expect([body.toString(), code]).toEqual(['ok', 0])
    expect(headers['transfer-encoding']).toBeUndefined()
  })

  it('hears of a 100 and of early hints', async () => {
    const { session } = await siteWith(async (request, response) => {
      response.writeEarlyHints({ link: '</a.css>; rel=preload' })
      response.end(await bodyOf(request))
    })
    const headers = { ':method': 'PUT', expect: '100-continue', 'content-length': 4 }
    const stream = openStream(session, headers, false)
    stream.once('continue', () => stream.end('late'))
    const { interims, body } = await answerOf(stream)
    expect(interims).toContain(103)
    expect(body.toString()).toBe('late')
  })

  it.each([
    ['a HEAD', { ':method': 'HEAD' }, OK.slice(0, -2), 200, '2'],
    ['a 204', {}, 'HTTP/1.1 204 No Content\r\n\r\n', 204, undefined],
    ['a 304', {}, 'HTTP/1.1 304 Not Modified\r\nETag: "a"\r\n\r\n', 304, undefined],
    ['a 205', {}, 'HTTP/1.1 205 Reset Content\r\nContent-Length: 2\r\n\r\nok', 205, undefined],
    ['a body until the end', {}, 'HTTP/1.1 200 OK\r\nConnection: close\r\n\r\n', 200, undefined],
  ])('gets %s without a body', async (_what, headers, answer, status, length) => {
    const server = await startScriptedService(answer)
    const closing = answer.includes('close')
    const site = await startIngressSite({
      service: server.port,
      ...(closing && {
        serve: (stream) => {
          stream.handler = {
            onData: () => {
              stream.write(Buffer.from(answer))
              stream.end()
            },
            onEnd() {},
            onDrain() {},
            onClose() {},
          }
        },
      }),
    })
    const got = await answerOf(openStream(await connectHttp2(site), headers))
    expect(got).toMatchObject({ status, code: 0 })
    expect(got.body).toHaveLength(0)
    expect(got.headers['content-length']).toBe(length)
  })

  it('gets fields that HTTP/2 has once as one, and cookies one by one', async () => {
    const { session } = await siteOf([
      'HTTP/1.1 200 OK\r\nContent-Length: 0\r\nSet-Cookie: a=1\r\nX-Content-Type-Options: nosniff\r\n' +
        'Set-Cookie: b=\xe9\r\nX-Content-Type-Options: nosniff\r\nKeep-Alive: 5\r\nX-Own: 1\r\nX-Own: 2\r\n\r\n',
    ])
    const { headers } = await answerOf(openStream(session))
    expect(headers).toMatchObject({
      'set-cookie': ['a=1', 'b=\xe9'],
      'x-content-type-options': 'nosniff, nosniff',
      'x-own': '1, 2',
    })
    expect(headers['keep-alive']).toBeUndefined()
  })

  it('gets a 500 for a status that HTTP/2 cannot carry', async () => {
    const { session } = await siteOf(['HTTP/1.1 999 Odd\r\nContent-Length: 0\r\n\r\n'])
    expect((await answerOf(openStream(session))).status).toBe(500)
  })

  it('gets the errors of the gateway', async () => {
    const { session } = await siteOf([OK])
    const { status, headers, body } = await answerOf(
      openStream(session, { ':authority': 'localhost', accept: 'text/html' }),
    )
    expect(status).toBe(404)
    expect(headers['ngrok-error-code']).toBe('ERR_NGROK_3200')
    expect(headers['content-length']).toBe(String(body.length))
    expect(body.toString()).toContain('<!doctype html>')
  })

  it.each([
    ['with a length', { 'content-length': 10 }],
    ['without one', {}],
  ])('sees that a response %s was broken off', async (_how, headers) => {
    const { session } = await siteWith((_request, response) => {
      response.writeHead(200, headers)
      response.write('half')
      response.socket?.end()
    })
    const stream = openStream(session)
    let hasEnded = false
    stream.on('end', () => {
      hasEnded = true
    })
    const { code } = await answerOf(stream)
    expect([code, hasEnded]).toEqual([2, false])
    expect((await answerOf(openStream(session, { ':authority': 'localhost' }))).status).toBe(404)
  })

  it('gives the stream of the device back when it leaves', async () => {
    let left = 0
    const { site, session } = await siteWith((_request, response) => {
      response.on('close', () => {
        left += 1
      })
      response.write('x')
    })
    const stream = openStream(session)
    await once(stream, 'data')
    stream.close(8)
    await eventually(() => expect(left).toBe(1))
    await eventually(() => expect(site.endpoint.traffic.active).toBe(0))
  })

  it('is told not to send the rest of a body that nobody reads', async () => {
    const { session } = await siteOf([OK])
    const stream = openStream(session, { ':authority': 'localhost', ':method': 'POST' }, false)
    stream.write('a part')
    const { status, code } = await answerOf(stream)
    expect([status, code]).toEqual([404, 0])
  })

  it('has to take what it asks for before more comes', async () => {
    const { site, session } = await siteWith((_request, response) => {
      response.end(Buffer.alloc(20_000_000))
    })
    const stream = openStream(session)
    await once(stream, 'response')
    stream.pause()
    await eventually(() => expect(site.endpoint.traffic.bytesOut).toBeGreaterThan(100_000))
    expect(site.endpoint.traffic.bytesOut).toBeLessThan(5_000_000)
    stream.resume()
    expect((await answerOf(stream)).body).toHaveLength(20_000_000)
  })

  it('is counted for a long head while it waits', async () => {
    const { site, session } = await siteOf([OK], { serve: () => {} })
    const { buffers } = site.endpoint.streams
    const stream = openStream(session, { 'x-long': 'x'.repeat(50_000) })
    await eventually(() => expect(buffers.bytes).toBeGreaterThan(100_000))
    stream.close(8)
    await eventually(() => expect(buffers.bytes).toBe(0))
  })

  it.each([
    ['bytes', { 'x-a': 'x'.repeat(33_000), 'x-b': 'x'.repeat(33_000) }],
    ['fields', Object.fromEntries(Array.from({ length: 260 }, (_, n) => [`x-${n}`, '1']))],
  ])('may not send a head of too many %s', async (_what, headers) => {
    const { service, site } = await siteOf([OK])
    const session = await connectHttp2(site, { maxSendHeaderBlockLength: 100_000 })
    const { status, headers: got } = await answerOf(openStream(session, headers))
    expect([status, got['ngrok-error-code']]).toEqual([431, 'ERR_GATEWAY_HEAD_TOO_LARGE'])
    expect((await answerOf(openStream(session))).status).toBe(200)
    expect(service.requests).toHaveLength(1)
  })

  it('shows policies its version and its protocol', async () => {
    const seen: unknown[] = []
    const { session } = await siteOf([OK], {
      policy: {
        hasRequestRules: true,
        onHttpRequest: ({ request, connection }) => {
          seen.push(request?.httpVersion, request?.host, connection.tls?.alpn, connection.clientIp)
          seen.push(connection.bytesIn > 0)
          return { kind: 'continue' }
        },
      },
    })
    await answerOf(openStream(session))
    expect(seen).toEqual(['2.0', 'a.test', 'h2', '127.0.0.1', true])
  })

  it('meets the connect rules of an endpoint once', async () => {
    let connects = 0
    const { session } = await siteOf([OK], {
      policy: {
        hasConnectRules: true,
        has: () => false,
        onTcpConnect: () => {
          connects += 1
          return { kind: 'continue' }
        },
        onHttpRequest: () => ({ kind: 'continue' }),
      },
    })
    await answerOf(openStream(session))
    await answerOf(openStream(session))
    expect(connects).toBe(1)
  })
})

describe('the name that an HTTP/2 request is for', () => {
  it('may be another that the certificate has', async () => {
    const { site } = await siteOf([OK])
    site.bind('localhost')
    const session = await connectHttp2(site)
    expect((await answerOf(openStream(session, { ':authority': 'localhost' }))).status).toBe(200)
    expect((await answerOf(openStream(session, { ':authority': 'A.test:443' }))).status).toBe(200)
  })

  it('is misdirected when the connection cannot stand for it', async () => {
    const { site, session } = await siteOf([OK])
    site.bind('b.test')
    for (const headers of [{ ':authority': 'b.test' }, { ':scheme': 'http' }]) {
      const { status, headers: got } = await answerOf(openStream(session, headers))
      expect(status).toBe(421)
      expect(got['ngrok-error-code']).toBe('ERR_GATEWAY_MISDIRECTED')
    }
    const unnamed = await connectHttp2(site, { servername: '' })
    expect((await answerOf(openStream(unnamed, { ':authority': 'b.test' }))).status).toBe(200)
  })

  it('is said once', async () => {
    const { session } = await siteOf([OK])
    const { status, body } = await answerOf(openStream(session, { host: 'b.test' }))
    expect(status).toBe(400)
    expect(body.toString()).toContain('a Host that differs from :authority')
    expect((await answerOf(openStream(session, { host: 'a.test' }))).status).toBe(200)
  })
})

describe('a WebSocket over HTTP/2', () => {
  const CONNECT = { ':method': 'CONNECT', ':protocol': 'websocket', 'sec-websocket-version': '13' }

  it('becomes an upgrade at the device', async () => {
    const { site } = await siteWith(() => {})
    const { port } = site.addresses.https
    expect(port).toBeGreaterThan(0)
    let request = ''
    const server = createServer().listen(0, '127.0.0.1')
    server.on('upgrade', (got, socket) => {
      request = JSON.stringify(got.headers)
      socket.write(
        'HTTP/1.1 101 Switching Protocols\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n',
      )
      socket.write('Sec-WebSocket-Accept: x\r\nSec-WebSocket-Protocol: chat\r\n\r\nhello ')
      socket.on('data', (chunk) => socket.write(chunk))
      socket.on('end', () => socket.end())
    })
    await once(server, 'listening')
    onTestFinished(() => {
      server.closeAllConnections()
      server.close()
    })
    const own = await startIngressSite({ service: (server.address() as AddressInfo).port })
    const session = await connectHttp2(own)
    await eventually(() => expect(session.remoteSettings.enableConnectProtocol).toBe(true))
    const stream = openStream(session, CONNECT, false)
    stream.write('world')
    let text = ''
    let headers: Record<string, unknown> = {}
    stream.on('response', (got) => {
      headers = got
    })
    stream.on('data', (chunk) => {
      text += chunk
    })
    await eventually(() => expect(text).toBe('hello world'))
    expect(headers).toMatchObject({ ':status': 200, 'sec-websocket-protocol': 'chat' })
    expect(headers['sec-websocket-accept']).toBeUndefined()
    expect(JSON.parse(request)).toMatchObject({ upgrade: 'websocket', connection: 'Upgrade' })
    expect(JSON.parse(request)['sec-websocket-key']).toMatch(/^[\w+/]{22}==$/)
    stream.end()
    await once(stream, 'close')
    expect(stream.rstCode).toBe(0)
    await eventually(() => expect(own.endpoint.traffic.active).toBe(0))
  })

  it.each([
    ['with a length', { 'content-length': '40', ...CONNECT }, false],
    ['none, whole with a length', { ':method': 'POST', 'content-length': '40' }, true],
  ])('is refused %s: the device would take it from the next request', async (_, head, isWhole) => {
    const { session, service } = await siteOf([OK])
    await eventually(() => expect(session.remoteSettings.enableConnectProtocol).toBe(true))
    const { status, code } = await answerOf(openStream(session, head, isWhole))
    // HTTP/2 itself may have a word for it, too.
    expect([400, undefined]).toContain(status)
    if (status === undefined) expect(code).not.toBe(0)
    expect(service.connections()).toBe(0)
  })

  it('is answered by a device that knows none', async () => {
    const { session } = await siteOf([
      'HTTP/1.1 426 Upgrade Required\r\nContent-Length: 2\r\n\r\nno',
    ])
    await eventually(() => expect(session.remoteSettings.enableConnectProtocol).toBe(true))
    const stream = openStream(session, CONNECT, false)
    stream.write('early')
    const { status, body } = await answerOf(stream)
    expect([status, body.toString()]).toEqual([426, 'no'])
  })

  it('is the only CONNECT', async () => {
    const { session } = await siteOf([OK])
    await eventually(() => expect(session.remoteSettings.enableConnectProtocol).toBe(true))
    const plain = session.request({ ':method': 'CONNECT', ':authority': 'a.test:443' })
    expect((await answerOf(plain)).status).toBe(501)
  })
})

describe('a mistake of the gateway', () => {
  const broken = () => {
    throw new Error('a bug')
  }

  it('costs an HTTP/2 stream, not its connection', async () => {
    const { site, session } = await siteOf([OK])
    site.bind('localhost', 'https', { hasRequestRules: true, onHttpRequest: broken })
    const { status, code } = await answerOf(openStream(session, { ':authority': 'localhost' }))
    // Another node in front of it has lost a peer, and says that in an answer.
    expect([status, code]).toEqual(isBehindNode() ? [502, 0] : [undefined, 2])
    expect((await answerOf(openStream(session))).status).toBe(200)
    expect(site.captured.text()).toContain('a bug')
  })
})

describe('an ingress that stops', () => {
  it('lets the streams of HTTP/2 end and takes no more', async () => {
    let answer: (() => void) | undefined
    const { site, session } = await siteWith((_request, response) => {
      answer = () => response.end('whole')
    })
    const stream = openStream(session)
    const whole = answerOf(stream)
    await eventually(() => expect(answer).toBeDefined())
    const goneAway = once(session, 'goaway')
    const stopped = site.front.stop(5_000)
    expect((await goneAway)[0]).toBe(0)
    answer?.()
    expect((await whole).body.toString()).toBe('whole')
    await stopped
    await eventually(() => expect(session.closed).toBe(true))
  })

  it('closes HTTP/2 connections that ask nothing', async () => {
    const { site, session } = await siteOf([OK])
    await answerOf(openStream(session))
    await site.front.stop(5_000)
    await eventually(() => expect(session.destroyed).toBe(true))
  })
})

describe('the deadlines of HTTP/2', () => {
  const limits = { headMs: 1_000, keepAliveMs: 1_000, sweepMs: 100, lingerMs: 200 }
  const isOver = (clock: ManualClock, isClosed: () => boolean) =>
    eventually(async () => {
      await clock.advance(100)
      expect(isClosed()).toBe(true)
    })

  it('close a connection that asks nothing', async () => {
    const clock = new ManualClock()
    const session = await connectHttp2(await startIngressSite({ service: 1, limits, clock }))
    await clock.advance(800)
    expect(session.closed).toBe(false)
    await isOver(clock, () => session.closed)
  })

  it('close one that has asked', async () => {
    const clock = new ManualClock()
    const { session } = await siteOf([OK], { limits, clock })
    await clock.advance(800)
    expect((await answerOf(openStream(session))).status).toBe(200)
    await clock.advance(800)
    expect(session.closed).toBe(false)
    await isOver(clock, () => session.closed)
  })

  it('end a handshake that does not', async () => {
    const clock = new ManualClock()
    const site = await startIngressSite({ service: 1, limits, clock })
    const socket = connect({ port: site.addresses.https.port, host: '127.0.0.1' }).resume()
    await once(socket, 'connect')
    await isOver(clock, () => socket.destroyed)
  })

  it('answer a body that does not come, and keep the connection', async () => {
    const { session } = await siteOf([OK], {
      limits: { bodyWindowMs: 30, sweepMs: 10 },
      serve: () => {},
    })
    const stream = openStream(session, { ':method': 'POST', 'content-length': 100_000 }, false)
    expect((await answerOf(stream)).status).toBe(408)
    expect(session.destroyed).toBe(false)
  })
})

function sumOf(bytes: Buffer): number {
  return bytes.reduce((sum, byte, at) => (sum + byte * (at % 251)) % 1_000_003, 0)
}
