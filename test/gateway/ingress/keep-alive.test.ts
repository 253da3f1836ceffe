import { createServer as createHttp } from 'node:http'
import { createServer, type Server } from 'node:net'
import { setTimeout as sleep } from 'node:timers/promises'
import { describe, expect, it } from 'vitest'
import { siteFor, VISITORS } from '../../helpers/three-visitors.ts'

const OK = 'HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok'

/** Answers one request, then closes without notice; a pause makes the next request meet the end. */
const closing = (pauseMs: number) =>
  createServer((socket) => {
    socket.once('data', () => {
      socket.write(OK)
      setTimeout(() => socket.end(), pauseMs)
    })
  })

/** Node's own server, whose answers do not say for how long it keeps the connection. */
const impatient = () =>
  createHttp({ keepAliveTimeout: 5, keepAliveTimeoutBuffer: 0 } as never, (request, response) => {
    response.setHeader('Connection', 'keep-alive')
    request.resume().on('end', () => response.end('ok'))
  })

describe.each(VISITORS)('a visitor of %s', (_name, open) => {
  /** How many requests ended how, one after the other, at a pace around that of the service. */
  async function outcomes(server: Server, method: string, body: string | undefined, total: number) {
    const visitor = open(await siteFor(server))
    const counts: Record<string, number> = {}
    for (let count = 0; count < total; count += 1) {
      const { status, headers } = await visitor.ask({ method, body })
      const key = headers['ngrok-error-code']?.toString() ?? String(status)
      counts[key] = (counts[key] ?? 0) + 1
      await sleep(Math.random() * 8)
    }
    return counts
  }

  it('gets 300 answers of a service that closes idle connections at that pace', async () => {
    expect(await outcomes(impatient(), 'GET', undefined, 300)).toEqual({ 200: 300 })
  })

  it.each([0, 4])('gets all answers of one that closes without notice after %s ms', async (ms) => {
    expect(await outcomes(closing(ms), 'GET', undefined, 60)).toEqual({ 200: 60 })
    expect(await outcomes(closing(ms), 'PUT', 'body', 60)).toEqual({ 200: 60 })
  })

  it('meets the end of a connection with a POST once at most, and is told so', async () => {
    const { 200: good = 0, ERR_GATEWAY_STALE_CONNECTION: stale = 0 } = await outcomes(
      closing(4),
      'POST',
      'body',
      100,
    )
    expect(good + stale).toBe(100)
    expect(stale).toBeLessThanOrEqual(1)
  })

  it('gets no 408 that was meant for an idle connection', async () => {
    const server = createServer((socket) => {
      const end = () => socket.end('HTTP/1.1 408 Request Timeout\r\nConnection: close\r\n\r\n')
      socket.once('data', () => {
        socket.write(OK)
        setTimeout(end, 4)
      })
    })
    expect(await outcomes(server, 'GET', undefined, 60)).toEqual({ 200: 60 })
  })

  it('is told of an answer that breaks off in its head', async () => {
    const server = createServer((socket) => {
      socket.once('data', () => {
        socket.write(OK)
        socket.once('data', () => socket.end('HTTP/1.1 200 OK\r\nContent-Le'))
      })
    })
    const visitor = open(await siteFor(server))
    expect(await visitor.ask()).toMatchObject({ status: 200, text: 'ok' })
    const { status, headers } = await visitor.ask()
    expect([status, headers['ngrok-error-code']]).toEqual([502, 'ERR_NGROK_3004'])
  })

  it.each([
    ['Connection: close', 3],
    ['Keep-Alive: timeout=1', 3],
    ['Keep-Alive: timeout=5, max=1', 3],
    ['Keep-Alive: timeout=5, max=100', 1],
  ])('asks a service that says %s on %s connections', async (field, connections) => {
    let count = 0
    const server = createServer((socket) => {
      count += 1
      socket.on('data', () => socket.write(OK.replace('\r\n\r\n', `\r\n${field}\r\n\r\n`)))
    })
    const visitor = open(await siteFor(server))
    for (let turn = 0; turn < 3; turn += 1) expect((await visitor.ask()).text).toBe('ok')
    expect(count).toBe(connections)
  })

  it('asks a service of HTTP/1.0 on one connection where it keeps that, else on more', async () => {
    for (const [field, connections] of [
      ['Server: old', 2],
      ['Connection: keep-alive', 1],
    ] as const) {
      let count = 0
      const server = createServer((socket) => {
        count += 1
        const answer = `HTTP/1.0 200 OK\r\n${field}\r\nContent-Length: 2\r\n\r\nok`
        socket.on('data', () => socket.write(answer))
      })
      const visitor = open(await siteFor(server))
      for (let turn = 0; turn < 2; turn += 1) expect((await visitor.ask()).text).toBe('ok')
      expect([field, count]).toEqual([field, connections])
    }
  })
})

it('sends head and body of a small request in one piece', async () => {
  const pieces: string[] = []
  const server = createServer((socket) => {
    socket.on('data', (chunk) => {
      pieces.push(chunk.toString('latin1').split('\r\n\r\n')[1] ?? '')
      socket.write(OK)
    })
  })
  const visitor = VISITORS[0][1](await siteFor(server))
  for (let turn = 0; turn < 3; turn += 1) await visitor.ask({ method: 'POST', body: 'body' })
  expect(pieces).toEqual(['body', 'body', 'body'])
})
