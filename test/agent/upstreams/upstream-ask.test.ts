import { once } from 'node:events'
import { createServer as createHttpServer } from 'node:http'
import { type AddressInfo, createServer, type Server, type Socket } from 'node:net'
import { describe, expect, it, onTestFinished } from 'vitest'
import { askUpstream } from '../../../src/agent/upstreams/upstream-ask.ts'
import {
  nextUpstream,
  type Upstream,
  type UpstreamEvent,
} from '../../../src/agent/upstreams/upstream-state.ts'

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
const serveStatus = (status: number) =>
  listen(createHttpServer((_request, response) => response.writeHead(status).end()))

const HEAD = { method: 'HEAD', path: '/' } as const
const PATH = { method: 'GET', path: '/healthz' } as const
const ask = (port: number, http: typeof HEAD | typeof PATH | undefined, withinMs = 2_000) =>
  askUpstream({ target: { host: '127.0.0.1', port }, http, withinMs, lookup: undefined })

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

  it('knows a service that hangs from one that is not there', async () => {
    const port = await serve(() => {})
    expect(await ask(port, HEAD, 200)).toBe('hung')
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
