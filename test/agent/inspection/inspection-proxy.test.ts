import { once } from 'node:events'
import { createServer, type RequestListener, type Server } from 'node:http'
import { type AddressInfo, connect, createServer as createTcpServer } from 'node:net'
import { text } from 'node:stream/consumers'
import { describe, expect, it, onTestFinished } from 'vitest'
import { InspectionProxy } from '../../../src/agent/inspection/inspection-proxy.ts'
import {
  ExchangeLog,
  MAX_BODY_BYTES,
  MAX_EXCHANGES,
  type RecordedExchange,
} from '../../../src/agent/inspection/recorded-exchange.ts'
import { systemClock } from '../../../src/base/clock.ts'
import { createDeferred } from '../../../src/base/deferred.ts'
import { eventually } from '../../helpers/eventually.ts'
import { sendBytes, sendRequest } from '../../helpers/serve-http.ts'

async function listen(server: { listen(port: number, host: string): unknown }) {
  server.listen(0, '127.0.0.1')
  await once(server as Server, 'listening')
  return ((server as Server).address() as AddressInfo).port
}

async function through(upstreamPort: number, isRecording = true) {
  const exchanges = new ExchangeLog()
  const proxy = new InspectionProxy({
    upstream: new URL(`http://127.0.0.1:${upstreamPort}`),
    exchanges: () => (isRecording ? exchanges : undefined),
    clock: systemClock,
  })
  const port = Number(new URL(await proxy.start()).port)
  onTestFinished(() => proxy.close())
  const only = async (): Promise<RecordedExchange> =>
    eventually(() => {
      const [exchange] = exchanges.list()
      if (!exchange || exchange.state === 'open') throw new Error('not yet')
      return exchange
    })
  return { port, exchanges, only }
}

async function inspected(listener: RequestListener) {
  const server = createServer(listener)
  onTestFinished(() => void server.close().closeAllConnections())
  return through(await listen(server))
}

/** A service that says the same bytes to everybody, and keeps what it hears. */
async function saying(bytes: string) {
  let heard = ''
  const server = createTcpServer((socket) => {
    socket.on('error', () => {})
    socket.setEncoding('latin1').on('data', (chunk) => {
      heard += chunk
      if (heard.includes('\r\n\r\n')) socket.end(bytes, 'latin1')
    })
  })
  onTestFinished(() => void server.close())
  return { ...(await through(await listen(server))), heard: () => heard }
}

describe('InspectionProxy', () => {
  it('passes heads as they are, in their order, letters and number', async () => {
    const { port, heard, only } = await saying(
      'HTTP/1.1 200 Fine so far\r\nX-Two: 1\r\nSet-Cookie: a=1\r\nset-cookie: b=2\r\nx-two: 2\r\nContent-Length: 2\r\n\r\nok',
    )
    const head =
      'GET /a%20b?x=1&x=2 HTTP/1.1\r\nhOsT: cam.site.test\r\nX-A: 1\r\nx-a: 2\r\nConnection: close\r\n\r\n'
    const answer = await sendBytes({ port }, head)
    expect(heard()).toBe(head)
    expect(answer).toContain(
      'HTTP/1.1 200 Fine so far\r\nX-Two: 1\r\nSet-Cookie: a=1\r\nset-cookie: b=2\r\nx-two: 2\r\n',
    )
    expect(answer.endsWith('\r\n\r\nok')).toBe(true)
    const { request, response, state } = await only()
    expect(request).toMatchObject({
      method: 'GET',
      target: '/a%20b?x=1&x=2',
      fields: [
        ['hOsT', 'cam.site.test'],
        ['X-A', '1'],
        ['x-a', '2'],
        ['Connection', 'close'],
      ],
    })
    expect([state, response?.status, response?.reason, response?.body.bytes.toString()]).toEqual([
      'answered',
      200,
      'Fine so far',
      'ok',
    ])
  })

  it('passes bodies whole, and keeps of them what it may', async () => {
    const size = 3_000_000
    const { port, only } = await inspected(async (request, response) => {
      response.end(await text(request))
    })
    const body = 'x'.repeat(size)
    const { text: answer } = await sendRequest({ port }, { method: 'POST', body })
    expect(answer.length).toBe(size)
    const { request, response } = await only()
    for (const kept of [request.body, response?.body]) {
      expect([kept?.totalBytes, kept?.bytes.length, kept?.isWhole]).toEqual([
        size,
        MAX_BODY_BYTES,
        false,
      ])
    }
  })

  it.each([
    ['HEAD', 200],
    ['GET', 204],
    ['GET', 304],
    ['DELETE', 404],
    ['OPTIONS', 200],
  ])('passes an answer without a body to %s: %i', async (method, status) => {
    const { port, only } = await inspected((_request, response) => {
      response.writeHead(status, { 'x-seen': '1' }).end()
    })
    const answer = await sendRequest({ port }, { method })
    expect([answer.status, answer.headers['x-seen'], answer.text]).toEqual([status, '1', ''])
    expect((await only()).response?.status).toBe(status)
  })

  it('lets a server decide whether a body may come', async () => {
    const { port } = await inspected(async (request, response) => response.end(await text(request)))
    const answer = await sendRequest(
      { port },
      { method: 'POST', body: 'late', beforeBody: async () => {} },
    )
    expect(answer.text).toBe('late')
  })

  it('passes what comes as it comes: the first part before the last is made', async () => {
    let finish = () => {}
    const { port } = await inspected((_request, response) => {
      response.write('data: 1\n\n')
      finish = () => response.end('data: 2\n\n')
    })
    const socket = connect(port, '127.0.0.1')
    let seen = ''
    socket.setEncoding('utf8').on('data', (chunk) => {
      seen += chunk
    })
    socket.write('GET /events HTTP/1.1\r\nhost: a\r\nconnection: close\r\n\r\n')
    await eventually(() => expect(seen).toContain('data: 1'))
    expect(seen).not.toContain('data: 2')
    finish()
    await once(socket, 'close')
    expect(seen).toContain('data: 2')
  })

  it('passes a WebSocket through, with its first answer written down', async () => {
    const server = createServer()
    server.on('upgrade', (_request, socket, head) => {
      socket.write(
        'HTTP/1.1 101 Switching Protocols\r\nupgrade: echo\r\nconnection: upgrade\r\n\r\n',
      )
      socket.write(head)
      socket.pipe(socket)
    })
    onTestFinished(() => void server.close().closeAllConnections())
    const { port, only } = await through(await listen(server))
    const socket = connect(port, '127.0.0.1')
    let seen = ''
    socket.setEncoding('latin1').on('data', (chunk) => {
      seen += chunk
    })
    socket.write('GET /ws HTTP/1.1\r\nhost: a\r\nupgrade: echo\r\nconnection: upgrade\r\n\r\nfirst')
    await eventually(() => expect(seen).toContain('first'))
    socket.write('\x00\xff second', 'latin1')
    await eventually(() => expect(seen).toContain('\x00\xff second'))
    expect(await only()).toMatchObject({ state: 'switched', response: { status: 101 } })
    socket.end()
    await once(socket, 'close')
  })

  it('says what the SDK says when connection refused, nothing is listening', async () => {
    const { port, only } = await through(1)
    const { status, text: body } = await sendRequest({ port }, { method: 'POST', body: 'x' })
    expect([status, body]).toEqual([502, 'failed to dial backend: 127.0.0.1:1 cannot be reached'])
    expect((await only()).state).toBe('failed')
    const upgrade = 'GET / HTTP/1.1\r\nhost: a\r\nupgrade: x\r\nconnection: upgrade\r\n\r\n'
    expect(await sendBytes({ port }, upgrade)).toContain('failed to dial backend')
  })

  it.each([
    ['no HTTP', 'hello\r\n\r\n'],
    ['half an answer', 'HTTP/1.1 200 OK\r\ncontent-length: 10\r\n\r\nhalf'],
    ['nothing', ''],
  ])('breaks off where a service says %s', async (_what, bytes) => {
    const { port, only } = await saying(bytes)
    const asked = sendRequest({ port })
    await expect(asked).rejects.toThrow(/socket hang up|ECONNRESET|aborted/)
    expect((await only()).state).toBe('failed')
  })

  it('leaves a service alone whose visitor has gone', async () => {
    let isGone = false
    const { port, exchanges } = await inspected((_request, response) => {
      response.write('begun')
      response.on('close', () => {
        isGone = true
      })
    })
    const socket = connect(port, '127.0.0.1')
    socket.write('GET / HTTP/1.1\r\nhost: a\r\n\r\n')
    await once(socket, 'data')
    socket.destroy()
    await eventually(() => expect(isGone).toBe(true))
    await eventually(() => expect(exchanges.list()[0]?.state).toBe('failed'))
  })

  it('keeps nothing more of a long upload that has made room for others', async () => {
    const { port, exchanges } = await inspected(async (request, response) => {
      response.end(await text(request))
    })
    const mayGoOn = createDeferred()
    const upload = sendRequest(
      { port },
      { method: 'POST', body: 'late', beforeBody: () => mayGoOn.promise },
    )
    await eventually(() => expect(exchanges.list()).toHaveLength(1))
    const [first] = exchanges.list()
    for (let n = 0; n < MAX_EXCHANGES; n += 1) {
      exchanges.begin({
        startedAt: 0,
        replayOf: undefined,
        request: { method: 'GET', target: '/', httpVersion: '1.1', fields: [] },
      })
    }
    mayGoOn.resolve()
    expect((await upload).text).toBe('late')
    expect(first?.request.body.totalBytes).toBe(0)
    expect(exchanges.list().every(({ request }) => request.target === '/')).toBe(true)
  })

  it('writes nothing down while nobody looks', async () => {
    const server = createServer((_request, response) => response.end('ok'))
    onTestFinished(() => void server.close().closeAllConnections())
    const { port, exchanges } = await through(await listen(server), false)
    expect((await sendRequest({ port })).text).toBe('ok')
    expect(exchanges.last).toBe(0)
  })
})
