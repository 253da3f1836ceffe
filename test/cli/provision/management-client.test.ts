import { once } from 'node:events'
import { createServer, type RequestListener } from 'node:http'
import { createServer as createTlsServer } from 'node:https'
import { type AddressInfo, createServer as createTcpServer, type Server } from 'node:net'
import { describe, expect, it, onTestFinished } from 'vitest'
import { z } from 'zod'
import { StartError } from '../../../src/base/app-error.ts'
import { Secret } from '../../../src/base/secret.ts'
import { ManagementClient } from '../../../src/cli/provision/management-client.ts'
import { eventually } from '../../helpers/eventually.ts'
import { ManualClock } from '../../helpers/manual-clock.ts'
import { createTlsFixture } from '../../helpers/tls-fixture.ts'

const KEY = 'canary-api-key'
const Item = z.object({ id: z.string() })

async function listen(server: Server): Promise<number> {
  server.listen(0, '127.0.0.1')
  await once(server, 'listening')
  onTestFinished(() => void server.close())
  return (server.address() as AddressInfo).port
}

function clientOf(baseUrl: string, timeoutMs = 60_000) {
  const clock = new ManualClock()
  const stopper = new AbortController()
  const client = new ManagementClient({
    baseUrl: new URL(baseUrl),
    apiKey: new Secret(KEY),
    clock,
    stop: stopper.signal,
    timeoutMs,
  })
  return { client, clock, stopper }
}

/** A client of an API that answers what the test says. */
async function connect(listener: RequestListener, timeoutMs?: number) {
  const server = createServer(listener)
  const port = await listen(server)
  onTestFinished(() => server.closeAllConnections())
  return { ...clientOf(`http://127.0.0.1:${port}`, timeoutMs), origin: `http://127.0.0.1:${port}` }
}

const answering =
  (status: number, body: unknown, headers: Record<string, string> = {}): RequestListener =>
  (_request, response) => {
    response.writeHead(status, headers).end(typeof body === 'string' ? body : JSON.stringify(body))
  }

/** The one sentence of a failure. */
async function sentenceOf(promise: Promise<unknown>): Promise<string> {
  const error = await promise.then(
    () => undefined,
    (reason: unknown) => reason,
  )
  expect(error).toBeInstanceOf(StartError)
  const { message } = error as StartError
  expect(message).not.toContain(KEY)
  expect(message).not.toContain('\n')
  return message
}

describe('ManagementClient', () => {
  it('sends the key, both names of the version and JSON', async () => {
    const { client } = await connect((request, response) => {
      const { authorization } = request.headers
      expect(authorization).toBe(`Bearer ${KEY}`)
      expect(request.headers['svc-version']).toBe('2')
      expect(request.headers['ngrok-version']).toBe('2')
      expect(request.headers['content-type']).toBe('application/json')
      request.pipe(response.writeHead(201))
    })
    expect(await client.create('things', { id: 'a' }, Item)).toEqual({ id: 'a' })
  })

  it('reads every page, asking by id and following no address', async () => {
    const asked: (string | undefined)[] = []
    const { client } = await connect(({ url }, response) => {
      asked.push(url)
      const isLast = url?.includes('before_id=b')
      const next_page_uri = isLast ? null : 'http://evil.test/things'
      const things = isLast ? [{ id: 'c' }] : [{ id: 'a' }, { id: 'b', extra: 1 }]
      response.end(JSON.stringify({ uri: '', next_page_uri, things }))
    })
    expect(await client.list('things', Item)).toEqual([{ id: 'a' }, { id: 'b' }, { id: 'c' }])
    expect(asked).toEqual(['/things?limit=100', '/things?limit=100&before_id=b'])
  })

  it('waits as long as the API asks, all requests together, and then goes on', async () => {
    let isFull = true
    let requests = 0
    const { client, clock } = await connect((request, response) => {
      requests += 1
      const refuse = answering(429, { msg: 'slow' }, { 'retry-after': '30' })
      if (isFull) refuse(request, response)
      else response.writeHead(204).end()
    })
    const first = client.delete('things/a')
    await eventually(() => expect(clock.sleeping).toBe(1))
    const second = client.delete('things/b')
    await eventually(() => expect(clock.sleeping).toBe(2))
    expect(requests).toBe(1)
    isFull = false
    await clock.advance(29_999)
    expect(clock.sleeping).toBe(2)
    await clock.advance(1)
    await Promise.all([first, second])
    expect(requests).toBe(3)
  })

  it('gives up on an API that asks to wait for ever', async () => {
    const { client, clock } = await connect(answering(429, { msg: 'Slow down.' }))
    const sentence = sentenceOf(client.delete('things/a'))
    for (let n = 0; n < 8; n += 1) {
      await eventually(() => expect(clock.sleeping).toBe(1))
      await clock.advance(5_000)
    }
    expect(await sentence).toMatch(/refused the request: Slow down\.$/)
  })

  it.each([
    [403, 'ERR_NGROK_203', `The key '${KEY}' is\nnot valid.`, /rejects the API key: .*not valid/],
    [401, undefined, 'No.', /rejects the API key: No\.$/],
    [
      400,
      'ERR_NGROK_414',
      'Taken.',
      /refused the request: Taken\. \(ERR_NGROK_414\) Choose another --domain/,
    ],
    [400, 'ERR_NGROK_999', 'ERR_NGROK_999: no.', /refused the request: ERR_NGROK_999: no\.$/],
  ])('says what the API said with %i %s', async (status, error_code, msg, sentence) => {
    const { client } = await connect(answering(status, { status_code: status, error_code, msg }))
    expect(await sentenceOf(client.create('things', {}, Item))).toMatch(sentence)
  })

  it.each([
    ['a page for people', answering(200, '<html>')],
    ['JSON of something else', answering(200, { hello: 'world' })],
    ['a field of another type', answering(200, { next_page_uri: null, things: [{ id: 7 }] })],
    ['an error without words', answering(500, 'oops')],
  ])('knows %s as another service', async (_what, listener) => {
    const { client, origin } = await connect(listener)
    const sentence = await sentenceOf(client.list('things', Item))
    expect(sentence).toContain(`${origin} is not a management API`)
  })

  it('follows no redirect, which could lead the key elsewhere', async () => {
    let requests = 0
    const { client } = await connect((request, response) => {
      requests += 1
      answering(302, '', { location: '/elsewhere' })(request, response)
    })
    expect(await sentenceOf(client.list('things', Item))).toContain('redirect')
    expect(requests).toBe(1)
  })

  it('reads no more than 8 MiB', async () => {
    const { client } = await connect((_request, response) => {
      response.end(Buffer.alloc(9 * 1024 * 1024, ' '))
    })
    expect(await sentenceOf(client.list('things', Item))).toContain('larger than')
  })

  it('gives up on one that does not answer in time', async () => {
    const { client } = await connect(() => {}, 100)
    expect(await sentenceOf(client.list('things', Item))).toContain('did not answer within 0.1 s')
  })

  it('ends with the process, also while it waits', async () => {
    const { client, stopper } = await connect(() => {})
    const silent = sentenceOf(client.list('things', Item))
    const waiting = await connect(answering(429, { msg: 'slow' }))
    const waited = sentenceOf(waiting.client.list('things', Item))
    await eventually(() => expect(waiting.clock.sleeping).toBe(1))
    stopper.abort()
    waiting.stopper.abort()
    expect(await Promise.all([silent, waited])).toEqual(
      Array.from({ length: 2 }, () => 'Stopped before the end.'),
    )
  })
})

describe('a connection that fails', () => {
  it('is told when nothing listens', async () => {
    const server = createServer()
    const port = await listen(server)
    server.close()
    const { client } = clientOf(`http://127.0.0.1:${port}`)
    expect(await sentenceOf(client.list('things', Item))).toMatch(/ refuses connections\./)
  })

  it('is told when the name has no address', async () => {
    const { client } = clientOf('https://nowhere.invalid')
    expect(await sentenceOf(client.list('things', Item))).toMatch(/cannot be resolved \(E/)
  })

  it('is told when the certificate is of an unknown CA', async () => {
    const { certPem: cert, keyPem: key } = await createTlsFixture()
    const port = await listen(createTlsServer({ cert, key }))
    const { client } = clientOf(`https://127.0.0.1:${port}`)
    const sentence = await sentenceOf(client.list('things', Item))
    expect(sentence).toMatch(/is not trusted \(UNABLE_TO_.*NODE_EXTRA_CA_CERTS/)
  })

  it('is told when TLS meets plain HTTP', async () => {
    const port = await listen(createServer())
    const { client } = clientOf(`https://127.0.0.1:${port}`)
    expect(await sentenceOf(client.list('things', Item))).toMatch(/does not use TLS/)
  })

  it('is told when the other side hangs up', async () => {
    const port = await listen(createTcpServer((socket) => socket.destroy()))
    const { client } = clientOf(`http://127.0.0.1:${port}`)
    expect(await sentenceOf(client.list('things', Item))).toMatch(
      /closed the connection without an HTTP response/,
    )
  })
})
