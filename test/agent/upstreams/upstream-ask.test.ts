import { once } from 'node:events'
import { createServer as createHttpServer } from 'node:http'
import type { ServerHttp2Stream } from 'node:http2'
import { createServer as createTlsServer } from 'node:https'
import { type AddressInfo, createServer, type Server, type Socket } from 'node:net'
import { join } from 'node:path'
import { describe, expect, it, onTestFinished } from 'vitest'
import { askUpstream } from '../../../src/agent/upstreams/upstream-check.ts'
import type { HttpQuestion } from '../../../src/agent/upstreams/upstream-request.ts'
import {
  nextUpstream,
  type Upstream,
  type UpstreamEvent,
} from '../../../src/agent/upstreams/upstream-state.ts'
import type { ProxyProtocol } from '../../../src/base/net/proxy-protocol.ts'
import { eventually } from '../../helpers/eventually.ts'
import { startHttp2Service } from '../../helpers/http2-service.ts'
import { startProxiedService } from '../../helpers/proxy-protocol-service.ts'
import { temporaryFolder } from '../../helpers/temporary-folder.ts'
import { createTlsFixture } from '../../helpers/tls-fixture.ts'

async function listen(server: Server): Promise<number> {
  const sockets = new Set<Socket>()
  server.on('connection', (socket) => sockets.add(socket))
  server.listen(0, '127.0.0.1')
  await once(server, 'listening')
  onTestFinished(() => {
    server.close()
    for (const socket of sockets) socket.destroy()
  })
  return (server.address() as AddressInfo).port
}

const serve = (onSocket: (socket: Socket) => void) =>
  listen(createServer((socket) => onSocket(socket.on('error', () => {}))))
const answer = (status: number) => (stream: ServerHttp2Stream) =>
  stream.respond({ ':status': status }, { endStream: true })
const serveStatus = (status: number) =>
  listen(createHttpServer((_request, response) => response.writeHead(status).end()))

const HEAD = { method: 'HEAD', path: '/', http2: false } as const
const PATH = { method: 'GET', path: '/healthz', http2: false } as const
const ask = (
  port: number,
  http: HttpQuestion | undefined,
  withinMs = 30_000,
  proxyProtocol?: ProxyProtocol,
) =>
  askUpstream({
    target: { host: '127.0.0.1', port },
    http,
    proxyProtocol,
    withinMs,
    lookup: undefined,
  })

describe('askUpstream', () => {
  it.each([
    ['answers', () => serveStatus(200), ['connected', 'answered', 'answered']],
    ['says 404', () => serveStatus(404), ['connected', 'answered', 'answered']],
    ['says 503', () => serveStatus(503), ['connected', 'answered', 'failed']],
    ['closes', () => serve((it) => it.destroy()), ['connected', 'garbled', 'garbled']],
    [
      'speaks something else',
      () => serve((it) => it.once('data', () => it.end('SSH-2.0\r\n'))),
      ['connected', 'garbled', 'garbled'],
    ],
    ['is not there', async () => 1, ['failed', 'failed', 'failed']],
  ])('knows a service that %s', async (_what, start, expected) => {
    const port = await start()
    const answers = []
    for (const http of [undefined, HEAD, PATH]) answers.push(await ask(port, http))
    expect(answers).toEqual(expected)
  })

  it.each([
    ['answers', () => startHttp2Service(answer(200)), ['answered', 'answered']],
    ['says 503', () => startHttp2Service(answer(503)), ['answered', 'failed']],
    ['resets', () => startHttp2Service((stream) => stream.close(2)), ['garbled', 'garbled']],
    ['speaks HTTP/1.1', async () => ({ port: await serveStatus(200) }), ['garbled', 'garbled']],
    ['closes', async () => ({ port: await serve((it) => it.destroy()) }), ['garbled', 'garbled']],
    ['is not there', async () => ({ port: 1 }), ['failed', 'failed']],
  ])('knows a service of HTTP/2 that %s', async (_what, start, expected) => {
    const { port } = await start()
    const answers = []
    for (const http of [HEAD, PATH]) answers.push(await ask(port, { ...http, http2: true }))
    expect(answers).toEqual(expected)
  })

  it('knows a service of HTTP/2 that hangs', async () => {
    const { port } = await startHttp2Service(() => {})
    expect(await ask(port, { ...HEAD, http2: true }, 200)).toBe('hung')
  })

  it.each([1, 2] as const)('says by PROXY header %i that it is nobody', async (version) => {
    const { port, connections } = await startProxiedService((head, { url }, response) => {
      response.writeHead(head === 'UNKNOWN' && url === '/healthz' ? 200 : 500).end()
    })
    expect(await ask(port, PATH, 30_000, version)).toBe('answered')
    expect(await ask(port, undefined, 30_000, version)).toBe('connected')
    await eventually(() => expect(connections).toEqual(['UNKNOWN', 'UNKNOWN']))
    // Without one such a service closes the connection.
    expect(await ask(port, PATH)).toBe('garbled')
  })

  it('knows a service that hangs from one that is not there', async () => {
    const port = await serve(() => {})
    expect(await ask(port, HEAD, 200)).toBe('hung')
  })
})

describe('a service that speaks TLS', () => {
  async function serveTls(): Promise<number> {
    const { certPem, keyPem } = await createTlsFixture()
    const answer = { cert: certPem, key: keyPem }
    const server = createTlsServer(answer, (_request, response) => response.end('ok'))
    server.on('tlsClientError', () => {})
    return listen(server)
  }
  const askTls = (port: number, verifyTls: boolean, http?: typeof HEAD | typeof PATH) =>
    askUpstream({
      target: { host: '127.0.0.1', port, isSecure: true },
      http,
      withinMs: 30_000,
      lookup: undefined,
      verifyTls,
    })

  it('is known by its certificate, which nobody trusts', async () => {
    const port = await serveTls()
    const answers = []
    for (const http of [undefined, HEAD, PATH]) answers.push(await askTls(port, true, http))
    expect(answers).toEqual(['untrusted', 'untrusted', 'untrusted'])
    const unverified = []
    for (const http of [undefined, HEAD, PATH]) unverified.push(await askTls(port, false, http))
    expect(unverified).toEqual(['connected', 'answered', 'answered'])
  })

  it('is none where there is no TLS', async () => {
    const port = await serveStatus(200)
    expect([await askTls(port, true), await askTls(port, true, PATH)]).toEqual([
      'garbled',
      'garbled',
    ])
    expect(await askTls(1, true)).toBe('failed')
  })
})

describe('a service at a Unix socket', () => {
  it('is asked like any other', async () => {
    const path = join(temporaryFolder(), 'app.sock')
    const target = { path }
    const asked = { target, withinMs: 30_000, lookup: undefined }
    expect(await askUpstream({ ...asked, http: PATH })).toBe('failed')
    const server = createHttpServer((_request, response) => response.end('ok')).listen(path)
    await once(server, 'listening')
    onTestFinished(() => void server.close())
    expect(await askUpstream({ ...asked, http: PATH })).toBe('answered')
    expect(await askUpstream({ ...asked, http: undefined })).toBe('connected')
  })
})

describe('nextUpstream', () => {
  it.each<[Upstream, UpstreamEvent, Upstream]>([
    ['unknown', 'connected', 'up'],
    ['down', 'connected', 'up'],
    ['slow', 'connected', 'slow'],
    ['garbage', 'connected', 'garbage'],
    ['garbage', 'answered', 'up'],
    ['slow', 'answered', 'up'],
    ['up', 'hung', 'slow'],
    ['up', 'garbled', 'garbage'],
    ['garbage', 'failed', 'down'],
  ])('%s, %s: %s', (state, event, next) => {
    expect(nextUpstream(state, event)).toBe(next)
  })
})
