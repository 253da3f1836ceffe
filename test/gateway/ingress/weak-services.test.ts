import { readFileSync } from 'node:fs'
import { createServer as createHttp, type RequestListener } from 'node:http'
import { connect, createServer, type Socket } from 'node:net'
import { connect as connectTls } from 'node:tls'
import { describe, expect, it, onTestFinished } from 'vitest'
import { eventually } from '../../helpers/eventually.ts'
import { HOST, siteFor, VISITORS } from '../../helpers/three-visitors.ts'

const OK = 'HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok'

/** A service of raw bytes that answers when a request is whole, and keeps what it got. */
function rawService(answer: string, isWhole = (request: string) => request.includes('\r\n\r\n')) {
  const seen = { request: '' }
  const server = createServer((socket) => {
    socket.on('data', (chunk) => {
      seen.request += chunk.toString('latin1')
      if (isWhole(seen.request)) socket.write(answer, 'latin1')
    })
  })
  return { server, seen }
}

const linesOf = (request: string) => (request.split('\r\n\r\n')[0] ?? '').split('\r\n')
const namesOf = (request: string) =>
  linesOf(request)
    .slice(1)
    .map((line) => line.split(':')[0] ?? '')

describe.each(VISITORS)('towards a service, a visitor of %s', (_name, open) => {
  it.each(['LABEL', 'DESCRIBE', 'VERSION-CONTROL', 'RPC_IN_DATA', 'PROPFIND'])(
    'may use the method %s',
    async (method) => {
      const { server, seen } = rawService(OK)
      const visitor = open(await siteFor(server))
      expect((await visitor.ask({ method })).text).toBe('ok')
      expect(linesOf(seen.request)[0]).toBe(`${method} / HTTP/1.1`)
    },
  )

  it('has the usual spelling of names', async () => {
    const { server, seen } = rawService(OK)
    const visitor = open(await siteFor(server))
    const headers = {
      ...{ 'Content-Type': 'text/plain', 'X-Own': '1', 'User-Agent': 'a', DNT: '1' },
      ...(_name === 'HTTP/2' ? { te: 'trailers' } : {}),
    }
    await visitor.ask({ method: 'POST', headers, body: 'x' })
    const names = namesOf(seen.request)
    expect(names).toEqual(expect.arrayContaining(['Content-Type', 'X-Own', 'User-Agent', 'DNT']))
    // A client of HTTP/1.1 wrote these itself; the gateway adds the others.
    const own = _name === 'HTTP/2' ? [] : ['host', 'content-length']
    const odd = names.filter((name) => /^(?!x-|forwarded$)[a-z]/.test(name) && !own.includes(name))
    expect(odd).toEqual([])
  })

  it('keeps the length of a body', async () => {
    const { server, seen } = rawService(OK, (request) => request.endsWith('body'))
    const visitor = open(await siteFor(server))
    const headers = { 'content-length': '4' }
    const answer = await visitor.ask({ method: 'POST', headers, body: 'body' })
    expect(answer).toMatchObject({ text: 'ok', headers: { 'content-length': '2' } })
    expect(answer.headers).not.toHaveProperty('transfer-encoding')
    expect(seen.request).toMatch(/\r\ncontent-length: 4\r\n/i)
    expect(seen.request).not.toMatch(/transfer-encoding/i)
  })

  it('says of an empty body that it is empty', async () => {
    const { server, seen } = rawService(OK)
    const visitor = open(await siteFor(server))
    await visitor.ask({ method: 'POST' })
    expect(seen.request).toMatch(/\r\ncontent-length: 0\r\n/i)
    expect(seen.request).not.toMatch(/transfer-encoding/i)
  })

  it('keeps fields apart that came apart, in both directions', async () => {
    const fields = ['Set-Cookie: a=1', 'Set-Cookie: b=2', 'Warning: 1', 'Warning: 2']
    const { server, seen } = rawService(OK.replace('\r\n', `\r\n${fields.join('\r\n')}\r\n`))
    const visitor = open(await siteFor(server))
    const headers = { 'x-own': ['1', '2'] as unknown as string, cookie: 'a=1; b=2' }
    const answer = await visitor.ask({ headers })
    expect(answer.headers['set-cookie']).toEqual(['a=1', 'b=2'])
    expect(answer.text).toBe('ok')
    const lines = linesOf(seen.request).map((line) => line.toLowerCase())
    expect(lines).toEqual(expect.arrayContaining(['x-own: 1', 'x-own: 2', 'cookie: a=1; b=2']))
  })

  it.each([
    ['blanks before the colon', 'HTTP/1.1 200 OK\r\nX-Own \t: 1\r\nContent-Length : 2\r\n\r\nok'],
    ['bare LF', 'HTTP/1.1 200 OK\nX-Own: 1\nContent-Length: 2\n\nok'],
    ['no reason', 'HTTP/1.1 200\r\nX-Own: 1\r\nContent-Length: 2\r\n\r\nok'],
    ['its length twice', OK.replace('\r\n', '\r\nX-Own: 1\r\nContent-Length: 2\r\n')],
  ])('gets an answer whose head has %s in strict form', async (_what, answer) => {
    const visitor = open(await siteFor(rawService(answer).server))
    const { status, headers, text, end } = await visitor.ask()
    expect([status, headers['x-own'], headers['content-length']]).toEqual([200, '1', '2'])
    expect([text, end]).toEqual(['ok', 'whole'])
  })

  it.each([
    ['a folded field', 'HTTP/1.1 200 OK\r\nX-Own: 1\r\n 2\r\nContent-Length: 2\r\n\r\nok'],
    ['two lengths', OK.replace('\r\n', '\r\nContent-Length: 3\r\n')],
    ['a length and chunks', OK.replace('\r\n', '\r\nTransfer-Encoding: chunked\r\n')],
    ['another coding', OK.replace('Content-Length: 2', 'Transfer-Encoding: gzip, chunked')],
    ['a NUL', OK.replace('OK', 'O\0K')],
    ['no status', 'HTTP/1.1 OK\r\n\r\n'],
    ['HTTP/0.9', 'ok'],
  ])('gets 502 for an answer with %s', async (_what, answer) => {
    const visitor = open(await siteFor(rawService(answer).server))
    const { status, headers } = await visitor.ask()
    expect([status, headers['ngrok-error-code']]).toEqual([502, 'ERR_NGROK_3004'])
  })
})

const REPLACING = JSON.stringify({
  on_http_response: [
    {
      actions: [
        {
          type: 'response-body-find-replace',
          config: { replacements: [{ from: 'secret', to: 'hidden' }] },
        },
      ],
    },
  ],
})

describe.each(VISITORS)('behind find-replace, a visitor of %s', (_name, open) => {
  const ask = async (listener: RequestListener) => {
    const visitor = open(await siteFor(createHttp(listener), REPLACING))
    return visitor.ask()
  }

  it.each([
    ['of 5 KB', 100],
    ['of 500 KB', 10_000],
    ['of 1.5 MB', 30_000],
  ])('gets a text %s with the words replaced', async (_size, lines) => {
    const text = 'the secret of this line, which is long enough\n'.repeat(lines)
    const answer = await ask((_request, response) => {
      response.setHeader('content-type', 'text/plain').end(text)
    })
    expect([answer.status, answer.end]).toEqual([200, 'whole'])
    expect(answer.text === text.replaceAll('secret', 'hidden')).toBe(true)
  })

  it('gets an image as it is', async () => {
    const answer = await ask((_request, response) => {
      response.setHeader('content-type', 'image/png').end('secret'.repeat(50_000))
    })
    expect([answer.status, answer.end]).toEqual([200, 'whole'])
    expect(answer.text === 'secret'.repeat(50_000)).toBe(true)
  })

  it('gets events as they come', async () => {
    let end = () => {}
    const server = createHttp((_request, response) => {
      response.setHeader('content-type', 'text/event-stream').write('data: 1\n\n')
      end = () => response.end('data: 2\n\n')
    })
    const visitor = open(await siteFor(server, REPLACING))
    // The service goes on only when the visitor has the first event.
    const answer = await visitor.ask({ onData: (text) => text.includes('data: 1') && end() })
    expect(answer).toMatchObject({ status: 200, text: 'data: 1\n\ndata: 2\n\n', end: 'whole' })
  })
})

it.each([
  ['HTTP/1.1', false],
  ['HTTPS', true],
])('passes an upgrade with a body on over %s, with the usual spelling', async (_name, isSecure) => {
  const switching =
    'HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: tcp\r\n\r\n'
  const { server, seen } = rawService(`${switching}hello`, (request) => request.endsWith('{}'))
  const { addresses } = await siteFor(server)
  const client: Socket = isSecure
    ? connectTls({
        port: (addresses.https as { port: number }).port,
        host: '127.0.0.1',
        servername: HOST,
        ca: readFileSync(addresses.caCertPath),
      })
    : connect(addresses.http.port, '127.0.0.1')
  onTestFinished(() => void client.destroy())
  let text = ''
  client.on('data', (chunk) => {
    text += chunk
  })
  const fields = 'connection: Upgrade\r\nupgrade: tcp\r\nContent-Length: 2'
  client.write(`POST /exec HTTP/1.1\r\nHost: ${HOST}\r\n${fields}\r\n\r\n{}`)
  await eventually(() => expect(text).toMatch(/^HTTP\/1\.1 101 .*hello$/s))
  client.write('more')
  await eventually(() => expect(seen.request).toMatch(/\{\}more$/))
  expect(namesOf(seen.request)).toEqual(expect.arrayContaining(['Connection', 'Upgrade']))
})
