import { once } from 'node:events'
import { constants, type IncomingHttpHeaders, type ServerHttp2Stream } from 'node:http2'
import { PassThrough } from 'node:stream'
import { describe, expect, it } from 'vitest'
import { CONTINUE } from '../../../../src/policy/exchange/outcome.ts'
import type {
  BodyTransform,
  PolicyExchange,
} from '../../../../src/policy/exchange/policy-exchange.ts'
import { eventually } from '../../../helpers/eventually.ts'
import { FrameDevice, responseHead, SETTINGS_FRAME } from '../../../helpers/http2-device.ts'
import {
  ACK,
  DATA,
  END_STREAM,
  frame,
  HEADERS,
  SETTINGS,
  WINDOW_UPDATE,
} from '../../../helpers/http2-frames.ts'
import { contentOf, startHttp2Service } from '../../../helpers/http2-service.ts'
import { answerOf, connectHttp2, openStream } from '../../../helpers/http2-visitor.ts'
import { type IngressSiteOptions, startIngressSite } from '../../../helpers/ingress-site.ts'
import { type PublicRequest, publicRequest } from '../../../helpers/public-request.ts'
import { RawClient } from '../../../helpers/raw-http.ts'

const MIB = 1_048_576
/** More than a connection may have of streams that nobody gets anything of. */
const CANCELLED = 150
/** Nobody listens there. */
const CLOSED = 1

type Serve = (stream: ServerHttp2Stream, headers: IncomingHttpHeaders) => void

/** A site whose device's service speaks HTTP/2 alone. */
async function siteWith(serve: Serve, options: Partial<IngressSiteOptions> = {}) {
  const service = await startHttp2Service(serve)
  const site = await startIngressSite({ service: service.port, appProtocol: 'http2', ...options })
  /** A visitor in HTTP/1.1. */
  const visit = (request: Partial<PublicRequest> = {}) =>
    publicRequest({
      ingress: `http://127.0.0.1:${site.addresses.http.port}`,
      host: 'a.test',
      ...request,
    })
  return { site, service, visit }
}

const echo: Serve = (stream, headers) => {
  stream.respond({ ':status': 200, 'x-method': headers[':method'], 'x-path': headers[':path'] })
  stream.pipe(stream)
}

describe('a service that speaks HTTP/2', () => {
  it('gets a request as one of its own, whoever asks', async () => {
    const seen: IncomingHttpHeaders[] = []
    const { site, visit } = await siteWith((stream, headers) => {
      seen.push(headers)
      stream.respond({ ':status': 204 }, { endStream: true })
    })
    const session = await connectHttp2(site)
    const inHttp2 = await answerOf(
      openStream(session, { ':path': '/a?b', 'x-own': '1', te: 'trailers' }),
    )
    expect(inHttp2.status).toBe(204)
    const headers = { 'X-Own': '1', connection: 'close, x-hop', 'x-hop': '1', te: 'trailers' }
    expect((await visit({ path: '/a?b', headers })).status).toBe(204)
    for (const one of seen) {
      expect(one).toMatchObject({
        ':method': 'GET',
        ':scheme': 'http',
        ':path': '/a?b',
        ':authority': expect.stringMatching(/^a\.test/),
        'x-own': '1',
        'x-forwarded-proto': expect.stringMatching(/^https?$/),
        'x-forwarded-for': '127.0.0.1',
        te: 'trailers',
      })
      expect(one).not.toHaveProperty('host')
      expect(one).not.toHaveProperty('x-hop')
      expect(one).not.toHaveProperty('connection')
    }
  })

  it.each([
    ['with a length', { 'content-length': String(3 * MIB) }],
    ['of a length that nobody knows', {}],
  ])('gets a body %s and sends one back', async (_what, headers) => {
    const { site, visit } = await siteWith(echo)
    const body = Buffer.alloc(3 * MIB, 'body')
    const session = await connectHttp2(site)
    const stream = openStream(session, { ':method': 'POST', ...headers }, false)
    stream.end(body)
    expect((await answerOf(stream)).body.equals(body)).toBe(true)
    const answer = await visit({ method: 'PUT', headers, body })
    expect(answer.body.equals(body)).toBe(true)
    expect(answer.headers['x-method']).toBe('PUT')
  })

  it('keeps a length that it names, and has none where it names none', async () => {
    const { visit } = await siteWith((stream, headers) => {
      stream.respond(headers[':path'] === '/known' ? { 'content-length': 2 } : {})
      stream.end('ok')
    })
    const known = await visit({ path: '/known' })
    expect([known.text, known.headers['content-length']]).toEqual(['ok', '2'])
    const unknown = await visit()
    expect([unknown.text, unknown.headers['transfer-encoding']]).toEqual(['ok', 'chunked'])
  })

  it.each([
    ['HEAD', { ':status': 200, 'content-length': 9 }, '9'],
    ['GET', { ':status': 204 }, undefined],
    ['GET', { ':status': 304 }, undefined],
    ['GET', { ':status': 200 }, '0'],
  ])('may answer %s with a head alone: %j', async (method, headers, length) => {
    const { site, visit, service } = await siteWith((stream) =>
      stream.respond(headers, { endStream: true }),
    )
    for (let n = 0; n < 2; n += 1) {
      const answer = await visit({ method })
      expect([answer.status, answer.text]).toEqual([headers[':status'], ''])
      expect(answer.headers['content-length']).toBe(length)
      const session = await connectHttp2(site)
      expect(await answerOf(openStream(session, { ':method': method }))).toMatchObject({
        status: headers[':status'],
        code: 0,
      })
    }
    expect(service.sessions).toHaveLength(1)
  })

  it('has its interim responses and trailers pass by', async () => {
    const { site } = await siteWith((stream) => {
      stream.additionalHeaders({ ':status': 103, link: '</a>' })
      stream.respond({ ':status': 200 }, { waitForTrailers: true })
      stream.on('wantTrailers', () => stream.sendTrailers({ 'x-sum': 'abc', trailer: 'no' }))
      stream.end('ok')
    })
    const stream = openStream(await connectHttp2(site), { te: 'trailers' })
    expect(await answerOf(stream)).toMatchObject({
      interims: [103],
      body: Buffer.from('ok'),
      trailers: { 'x-sum': 'abc' },
      code: 0,
    })
    const client = RawClient.connectTls(site.addresses.https.port, site.caPem)
    client.send('GET / HTTP/1.1\r\nHost: a.test\r\nTE: trailers\r\nConnection: TE\r\n\r\n')
    await client.receive('x-sum: abc\r\n\r\n')
    expect(client.text).toContain('2\r\nok\r\n0\r\nx-sum: abc\r\n\r\n')
  })

  it('may say how long its content is, and send trailers behind it to who knows them', async () => {
    const { site } = await siteWith((stream) => {
      stream.respond({ ':status': 200, 'content-length': 2 }, { waitForTrailers: true })
      stream.on('wantTrailers', () => stream.sendTrailers({ 'x-sum': 'abc' }))
      stream.end('ok')
    })
    const session = await connectHttp2(site)
    expect(await answerOf(openStream(session, { te: 'trailers' }))).toMatchObject({
      headers: { 'content-length': '2' },
      body: Buffer.from('ok'),
      trailers: { 'x-sum': 'abc' },
      code: 0,
    })
    expect(await answerOf(openStream(session))).toMatchObject({
      headers: { 'content-length': '2' },
      body: Buffer.from('ok'),
      trailers: {},
      code: 0,
    })
    const client = RawClient.connectTls(site.addresses.https.port, site.caPem)
    client.send('GET / HTTP/1.1\r\nHost: a.test\r\nTE: trailers\r\nConnection: TE\r\n\r\n')
    await client.receive('2\r\nok\r\n0\r\nx-sum: abc\r\n\r\n')
    expect(client.text).not.toMatch(/^content-length/im)
    client.send('GET / HTTP/1.1\r\nHost: a.test\r\n\r\n')
    await client.receive('\r\n\r\nok')
    expect(client.text).toMatch(/^content-length: 2\r$/m)
  })

  it('gets trailers behind a body with a length where a request announces them', async () => {
    const { site } = await siteWith((stream, headers) => {
      let sum: unknown
      stream.on('trailers', (trailers) => {
        sum = trailers['x-sum']
      })
      stream.on('data', () => {})
      stream.on('end', () => {
        stream.respond({ 'x-got': `${sum} ${headers.trailer}` }, { endStream: true })
      })
    })
    const session = await connectHttp2(site)
    const ask = async (more: Record<string, string>) => {
      const head = { ':method': 'POST', ':authority': 'a.test', 'content-length': 4 }
      const stream = session.request({ ...head, ...more }, { waitForTrailers: true })
      stream.on('wantTrailers', () => stream.sendTrailers({ 'x-sum': 'abc' }))
      stream.end('body')
      return (await answerOf(stream)).headers['x-got']
    }
    expect(await ask({ trailer: 'x-sum' })).toBe('abc x-sum')
    // Others are left out, as HTTP lets who passes a message on.
    expect(await ask({})).toBe('undefined undefined')
  })

  it('gets trailers of a request', async () => {
    const { site } = await siteWith((stream) => {
      let sum: unknown
      stream.on('trailers', (trailers) => {
        sum = trailers['x-sum']
      })
      stream.on('data', () => {})
      stream.on('end', () => {
        stream.respond({ 'x-got': String(sum) }, { endStream: true })
      })
    })
    const session = await connectHttp2(site)
    const stream = session.request(
      { ':method': 'POST', ':authority': 'a.test' },
      { waitForTrailers: true },
    )
    stream.on('wantTrailers', () => stream.sendTrailers({ 'x-sum': 'abc', host: 'b.test' }))
    stream.end('body')
    expect((await answerOf(stream)).headers['x-got']).toBe('abc')
    const client = RawClient.connectTls(site.addresses.https.port, site.caPem)
    client.send('POST / HTTP/1.1\r\nHost: a.test\r\nTransfer-Encoding: chunked\r\n\r\n')
    client.send('1\r\nx\r\n0\r\nx-sum: abc\r\n\r\n')
    await client.receive('x-got: abc')
  })

  it('has head, body and end of a small request in one write: more would wait for each other', async () => {
    let device: FrameDevice | undefined
    const site = await startIngressSite({
      service: 1,
      appProtocol: 'http2',
      serve(stream) {
        device = new FrameDevice(stream, (it, { type, flags, stream: id }) => {
          if (type === SETTINGS && flags === 0) it.send(SETTINGS_FRAME, frame(SETTINGS, ACK, 0))
          if (type === DATA && flags === END_STREAM) it.send(responseHead(id, END_STREAM))
        })
      },
    })
    const session = await connectHttp2(site)
    const ask = () => {
      const stream = openStream(session, { ':method': 'POST' }, false)
      stream.end('body')
      return answerOf(stream)
    }
    expect((await ask()).status).toBe(200)
    const before = device?.writes ?? 0
    expect((await ask()).status).toBe(200)
    expect(device?.writes).toBe(before + 1)
  })

  it('gets window updates of its stream alone during a download: more would wait for each other', async () => {
    let device: FrameDevice | undefined
    let window = 0
    let left = 8 * MIB
    const site = await startIngressSite({
      service: 1,
      appProtocol: 'http2',
      serve(stream) {
        device = new FrameDevice(stream, (it, { type, flags, stream: id, payload }) => {
          if (type === SETTINGS && flags === 0) it.send(SETTINGS_FRAME, frame(SETTINGS, ACK, 0))
          if (type === HEADERS) {
            window = 524_288
            it.send(responseHead(id))
          }
          if (type === WINDOW_UPDATE && id !== 0) window += payload.readUInt32BE()
          while (id !== 0 && left > 0 && window >= 16_384) {
            left -= 16_384
            window -= 16_384
            it.send(frame(DATA, left === 0 ? END_STREAM : 0, id, Buffer.alloc(16_384)))
          }
        })
      },
    })
    const session = await connectHttp2(site)
    const answer = openStream(session)
    expect((await contentOf(answer)).length).toBe(8 * MIB)
    const updates = device?.frames.filter(({ type }) => type === WINDOW_UPDATE) ?? []
    // That of the connection comes once, with its begin.
    expect(updates.filter(({ stream }) => stream === 0)).toHaveLength(1)
    expect(updates.length).toBeGreaterThan(8)
  })

  it('is asked before a body is sent, where the visitor wants that', async () => {
    const { site } = await siteWith((stream) => {
      stream.additionalHeaders({ ':status': 100 })
      echo(stream, {})
    })
    const client = RawClient.connectTls(site.addresses.https.port, site.caPem)
    client.send(
      'POST / HTTP/1.1\r\nHost: a.test\r\nExpect: 100-continue\r\nContent-Length: 2\r\n\r\n',
    )
    await client.receive('HTTP/1.1 100 Continue\r\n\r\n')
    client.send('ok')
    await client.receive('ok\r\n')
  })

  it('serves one request after another on a connection, and many on one each', async () => {
    const waiting: ServerHttp2Stream[] = []
    const { site, service, visit } = await siteWith((stream, headers) => {
      if (headers[':path'] === '/wait') waiting.push(stream)
      else echo(stream, headers)
    })
    for (let n = 0; n < 5; n += 1)
      expect((await visit({ method: 'POST', body: 'x' })).text).toBe('x')
    expect(service.sessions).toHaveLength(1)
    const session = await connectHttp2(site)
    const answers = Array.from({ length: 5 }, () =>
      answerOf(openStream(session, { ':path': '/wait' })),
    )
    await eventually(() => expect(waiting).toHaveLength(5))
    expect(service.sessions).toHaveLength(5)
    for (const stream of waiting) echo(stream, {})
    expect((await Promise.all(answers)).map(({ status }) => status)).toEqual(Array(5).fill(200))
    expect(site.slots.busy).toBe(0)
  })

  it('hears that a visitor has gone, at whatever point', async () => {
    const codes: number[] = []
    const { site } = await siteWith((stream, headers) => {
      stream.on('close', () => codes.push(stream.rstCode))
      if (headers[':path'] === '/begun') stream.respond({})
      if (headers[':path'] === '/begun') stream.write('part')
    })
    const free = site.session.freeSlots
    const session = await connectHttp2(site)
    for (const path of ['/begun', '/silent']) {
      const stream = openStream(session, { ':method': 'POST', ':path': path }, false)
      stream.write('part')
      await eventually(() => expect(site.slots.busy).toBe(1))
      if (path === '/begun') await new Promise((resolve) => stream.once('data', resolve))
      else await eventually(() => expect(site.sdk.connections).toBeGreaterThan(0))
      stream.close(constants.NGHTTP2_CANCEL)
      await eventually(() => expect(site.endpoint.traffic.active).toBe(0))
      await eventually(() => expect(site.session.freeSlots).toBe(free))
    }
    await eventually(() => expect(codes).toEqual(Array(2).fill(constants.NGHTTP2_CANCEL)))
  })

  it('hears of each of many that a visitor gives up, whose connection stays', async () => {
    let cancelled = 0
    const { site } = await siteWith((stream) => {
      stream.on('close', () => {
        if (stream.rstCode === constants.NGHTTP2_CANCEL) cancelled += 1
      })
      stream.respond({})
      stream.write('part')
    })
    const free = site.session.freeSlots
    const session = await connectHttp2(site)
    for (let n = 0; n < CANCELLED; n += 1) {
      const stream = openStream(session)
      await once(stream, 'data')
      stream.close(constants.NGHTTP2_CANCEL)
    }
    await eventually(() => expect(cancelled).toBe(CANCELLED))
    await eventually(() => expect(site.session.freeSlots).toBe(free))
    expect(session.destroyed).toBe(false)
  })

  it('holds up a visitor who sends more than it takes, and one who takes less than it sends', async () => {
    let taken: ServerHttp2Stream | undefined
    const { site } = await siteWith((stream, headers) => {
      if (headers[':method'] === 'POST') {
        taken = stream
        return
      }
      stream.respond({})
      const fill = () => {
        while (stream.write(Buffer.alloc(65_536))) {}
      }
      stream.on('drain', fill)
      fill()
    })
    const session = await connectHttp2(site)
    const upload = openStream(session, { ':method': 'POST' }, false)
    upload.write(Buffer.alloc(8 * MIB))
    await eventually(() => expect(taken).toBeDefined())
    const slow = openStream(session)
    slow.pause()
    await eventually(() => expect(site.endpoint.streams.buffers.bytes).toBeGreaterThan(100_000))
    expect(site.endpoint.streams.buffers.bytes).toBeLessThan(2 * MIB)
    expect(site.endpoint.traffic.bytesIn).toBeLessThan(2 * MIB)
    taken?.on('data', () => {})
    taken?.on('end', () => taken?.respond({}, { endStream: true }))
    upload.end()
    expect((await answerOf(upload)).status).toBe(200)
    slow.close()
    await eventually(() => expect(site.endpoint.streams.buffers.bytes).toBe(0))
  })

  it('may answer before it has the whole request', async () => {
    const { site } = await siteWith((stream) => {
      stream.respond({ ':status': 413 })
      stream.end('too much')
    })
    const session = await connectHttp2(site)
    const stream = openStream(session, { ':method': 'POST' }, false)
    stream.write('part')
    const { status, body } = await answerOf(stream)
    expect([status, body.toString()]).toEqual([413, 'too much'])
    await eventually(() => expect(site.slots.inUse).toBe(0))
  })

  it('is under the policy in both phases', async () => {
    const upper: BodyTransform = {
      isWhole: false,
      create: () => {
        const stream = new PassThrough()
        stream._transform = (chunk, _encoding, done) => done(null, String(chunk).toUpperCase())
        return stream
      },
    }
    const policy = {
      hasRequestRules: true,
      hasResponseRules: true,
      onHttpRequest(exchange: PolicyExchange) {
        if (exchange.request) exchange.request.target = '/changed'
        exchange.transformRequest({ ...upper, isWhole: true })
        return CONTINUE
      },
      async onHttpResponse(exchange: PolicyExchange) {
        await new Promise((resolve) => setImmediate(resolve))
        exchange.transformResponse(upper)
        return CONTINUE
      },
    }
    const { site, visit } = await siteWith(
      (stream, headers) => {
        stream.respond({ 'x-got': `${headers[':path']} ${headers['content-length']}` })
        void contentOf(stream).then((body) => stream.end(`${body} back`))
      },
      { policy },
    )
    const inHttp1 = await visit({ method: 'POST', body: 'body' })
    expect(inHttp1.text).toBe('BODY BACK')
    expect(inHttp1.headers['x-got']).toBe('/changed 4')
    const stream = openStream(await connectHttp2(site), { ':method': 'POST' }, false)
    stream.end('body')
    expect((await answerOf(stream)).body.toString()).toBe('BODY BACK')
  })

  it('gets an upgrade in HTTP/1.1, and its connection is used for nothing else', async () => {
    const { site, visit } = await siteWith(echo)
    const client = RawClient.connectTls(site.addresses.https.port, site.caPem)
    client.send(
      'GET / HTTP/1.1\r\nHost: a.test\r\nConnection: upgrade\r\nUpgrade: websocket\r\n\r\n',
    )
    await client.receive('ERR_NGROK_3004')
    expect((await visit()).status).toBe(200)
  })

  it('that is not there is told as one that cannot be reached', async () => {
    const { visit } = await siteWith(echo, { service: CLOSED })
    const answer = await visit()
    expect(answer.status).toBe(502)
    expect(answer.headers['ngrok-error-code']).toBe('ERR_NGROK_8012')
  })

  it('that says nothing gets 504, and a call of gRPC may wait for longer', async () => {
    const limits = { answerMs: 100, idleMs: 600, sweepMs: 20 }
    const { site, visit } = await siteWith(() => {}, { limits })
    expect((await visit()).status).toBe(504)
    const { status } = await answerOf(
      openStream(await connectHttp2(site), {
        ':method': 'POST',
        'content-type': 'application/grpc',
      }),
    )
    expect(status).toBe(200)
  })
})
