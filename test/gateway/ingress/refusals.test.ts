import { describe, expect, it } from 'vitest'
import { startIngressSite } from '../../helpers/ingress-site.ts'
import { fieldsOf, RawClient, startScriptedService } from '../../helpers/raw-http.ts'

const HOST = 'Host: a.test\r\n'

/** What is wrong with a request, its bytes, and what the answer says about it. */
const MALFORMED: readonly (readonly [what: string, bytes: string, says: string])[] = [
  [
    'two lengths',
    `POST / HTTP/1.1\r\n${HOST}Content-Length: 1\r\nContent-Length: 1\r\n\r\nx`,
    'two Content-Length fields',
  ],
  [
    'a length beside chunks',
    `POST / HTTP/1.1\r\n${HOST}Content-Length: 5\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n`,
    'both Content-Length and Transfer-Encoding',
  ],
  [
    'chunks beside a length',
    `POST / HTTP/1.1\r\n${HOST}Transfer-Encoding: chunked\r\nContent-Length: 5\r\n\r\n0\r\n\r\n`,
    'both Content-Length and Transfer-Encoding',
  ],
  [
    'a list of lengths',
    `POST / HTTP/1.1\r\n${HOST}Content-Length: 1, 1\r\n\r\nx`,
    'an invalid Content-Length',
  ],
  [
    'a signed length',
    `POST / HTTP/1.1\r\n${HOST}Content-Length: +1\r\n\r\nx`,
    'an invalid Content-Length',
  ],
  [
    'a negative length',
    `POST / HTTP/1.1\r\n${HOST}Content-Length: -1\r\n\r\nx`,
    'an invalid Content-Length',
  ],
  [
    'a hexadecimal length',
    `POST / HTTP/1.1\r\n${HOST}Content-Length: 0x1\r\n\r\nx`,
    'an invalid Content-Length',
  ],
  [
    'an empty length',
    `POST / HTTP/1.1\r\n${HOST}Content-Length:\r\n\r\n`,
    'an invalid Content-Length',
  ],
  [
    'a giant length',
    `POST / HTTP/1.1\r\n${HOST}Content-Length: ${'9'.repeat(20)}\r\n\r\n`,
    'an invalid Content-Length',
  ],
  [
    'a length that no double counts exactly',
    `POST / HTTP/1.1\r\n${HOST}Content-Length: 9007199254740992\r\n\r\n`,
    'an invalid Content-Length',
  ],
  [
    'a look-alike of a transfer coding',
    `POST / HTTP/1.1\r\n${HOST}Transfer_Encoding: chunked\r\nContent-Length: 5\r\n\r\n0\r\n\r\n`,
    'the field Transfer_Encoding, which servers may read as transfer-encoding',
  ],
  [
    'a look-alike of a length',
    `POST / HTTP/1.1\r\n${HOST}content_length: 5\r\n\r\nhello`,
    'the field content_length',
  ],
  ...['X_Forwarded_For', 'X-Forwarded_Proto', 'x_real_ip', 'PROXY_CONNECTION'].map(
    (name) =>
      [
        `a look-alike: ${name}`,
        `GET / HTTP/1.1\r\n${HOST}${name}: 10.0.0.1\r\n\r\n`,
        `the field ${name}`,
      ] as const,
  ),
  [
    'two transfer codings',
    `POST / HTTP/1.1\r\n${HOST}Transfer-Encoding: gzip, chunked\r\n\r\n0\r\n\r\n`,
    'other than chunked',
  ],
  [
    'a disguised coding',
    `POST / HTTP/1.1\r\n${HOST}Transfer-Encoding: xchunked\r\n\r\n0\r\n\r\n`,
    'other than chunked',
  ],
  [
    'two codings in two fields',
    `POST / HTTP/1.1\r\n${HOST}Transfer-Encoding: chunked\r\nTransfer-Encoding: chunked\r\n\r\n`,
    'two Transfer-Encoding fields',
  ],
  [
    'chunks in HTTP/1.0',
    `POST / HTTP/1.0\r\n${HOST}Transfer-Encoding: chunked\r\n\r\n0\r\n\r\n`,
    'HTTP/1.0',
  ],
  ['a bare LF behind the line', `GET / HTTP/1.1\n${HOST}\r\n`, 'a bare LF in the start line'],
  [
    'a bare LF behind a field',
    'GET / HTTP/1.1\r\nHost: a.test\n\r\n',
    'a bare LF in a field value',
  ],
  ['a bare LF at the end', `GET / HTTP/1.1\r\n${HOST}\n`, 'at the start of a field'],
  ['a bare CR in a value', 'GET / HTTP/1.1\r\nHost: a.test\r\nX: a\rb\r\n\r\n', 'a bare CR'],
  ['a bare CR in the line', 'GET /\rx HTTP/1.1\r\nHost: a.test\r\n\r\n', 'a bare CR'],
  ['a NUL in a value', `GET / HTTP/1.1\r\n${HOST}X: a\0b\r\n\r\n`, 'a NUL in a field value'],
  ['a NUL in a name', `GET / HTTP/1.1\r\n${HOST}X\0: a\r\n\r\n`, 'a NUL in a field name'],
  [
    'a control character',
    `GET / HTTP/1.1\r\n${HOST}X: \x01\r\n\r\n`,
    'an invalid character in a field value',
  ],
  [
    'a space before the colon',
    'GET / HTTP/1.1\r\nHost : a.test\r\n\r\n',
    'a space in a field name',
  ],
  [
    'a tab before the colon',
    `POST / HTTP/1.1\r\n${HOST}Content-Length\t: 1\r\n\r\nx`,
    'a space in a field name',
  ],
  ['a folded field', `GET / HTTP/1.1\r\n${HOST}X: a\r\n b\r\n\r\n`, 'a folded field'],
  ['a folded first field', `GET / HTTP/1.1\r\n X: a\r\n${HOST}\r\n`, 'a folded field'],
  ['a field without a colon', `GET / HTTP/1.1\r\n${HOST}Xyz\r\n\r\n`, 'without a colon'],
  ['a field without a name', `GET / HTTP/1.1\r\n${HOST}: a\r\n\r\n`, 'a colon at the start'],
  ['no host', 'GET / HTTP/1.1\r\nX: y\r\n\r\n', 'no Host field'],
  ['no host in HTTP/1.0', 'GET / HTTP/1.0\r\n\r\n', 'no Host field'],
  ['two hosts', `GET / HTTP/1.1\r\n${HOST}Host: b.test\r\n\r\n`, 'two Host fields'],
  ['the same host twice', `GET / HTTP/1.1\r\n${HOST}${HOST}\r\n`, 'two Host fields'],
  ['an empty host', 'GET / HTTP/1.1\r\nHost:\r\n\r\n', 'not a valid host name'],
  ['a host with a path', 'GET / HTTP/1.1\r\nHost: a.test/x\r\n\r\n', 'not a valid host name'],
  ['a host with a user', 'GET / HTTP/1.1\r\nHost: u@a.test\r\n\r\n', 'not a valid host name'],
  ['a host list', 'GET / HTTP/1.1\r\nHost: a.test, b.test\r\n\r\n', 'not a valid host name'],
  ['a host with an odd port', 'GET / HTTP/1.1\r\nHost: a.test:8x\r\n\r\n', 'an invalid port'],
  ['a method of 33 letters', `${'A'.repeat(33)} / HTTP/1.1\r\n${HOST}\r\n`, 'a method'],
  ['a method in lower case', `get / HTTP/1.1\r\n${HOST}\r\n`, 'a method that is not allowed'],
  ['a tunnel', 'CONNECT a.test:443 HTTP/1.1\r\nHost: a.test:443\r\n\r\n', 'a method'],
  ['a relative target', `GET x HTTP/1.1\r\n${HOST}\r\n`, 'an invalid request target'],
  ['no target', `GET  HTTP/1.1\r\n${HOST}\r\n`, 'an invalid request target'],
  ['a target with a space', `GET /a b HTTP/1.1\r\n${HOST}\r\n`, 'an invalid request target'],
  ['a target with a fragment', `GET /a#b HTTP/1.1\r\n${HOST}\r\n`, 'an invalid request target'],
  ['a star for GET', `GET * HTTP/1.1\r\n${HOST}\r\n`, 'an invalid request target'],
  [
    'another host in the target',
    `GET http://b.test/ HTTP/1.1\r\n${HOST}\r\n`,
    'host differs from Host',
  ],
  [
    'a user in the target',
    `GET http://u@a.test/ HTTP/1.1\r\n${HOST}\r\n`,
    'host differs from Host',
  ],
  ['another scheme', `GET ftp://a.test/ HTTP/1.1\r\n${HOST}\r\n`, 'an invalid request target'],
  ['a later version', `GET / HTTP/1.2\r\n${HOST}\r\n`, 'a version'],
  ['no version', `GET /\r\n${HOST}\r\n`, 'a version'],
  ['a lower-case version', `GET / http/1.1\r\n${HOST}\r\n`, 'a version'],
  [
    'TLS',
    '\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03\r\n\r\n',
    'an invalid character in the start line',
  ],
  [
    'an odd connection field',
    `GET / HTTP/1.1\r\n${HOST}Connection: a b\r\n\r\n`,
    'an invalid Connection field',
  ],
]

/** Fields that frame, route, authenticate or modify: nobody may learn of them behind the body. */
const LATE = [
  ...['Transfer-Encoding', 'Host', 'Connection', 'TE', 'Trailer', 'Expect'],
  ...['Authorization', 'Proxy-Authorization', 'Cookie', 'Set-Cookie', 'Content_Type'],
  ...['X-Forwarded-For', 'X_Forwarded_For', 'X-Forwarded-Prefix', 'Forwarded', 'X-Real-IP'],
  ...['If-None-Match', 'Range', 'Cache-Control', 'Content-Encoding', 'Max-Forwards'],
]

/** Bodies that go wrong after a good head. */
const MALFORMED_BODIES: readonly (readonly [what: string, body: string, says: string])[] = [
  ['an invalid chunk size', 'g\r\n', 'an invalid chunk size'],
  ['no chunk size', '\r\n', 'an invalid chunk size'],
  ['a hexadecimal prefix', '0x5\r\nhello\r\n', 'an invalid chunk size'],
  ['a space behind the size', '5 \r\nhello\r\n', 'an invalid chunk size'],
  ['a size that is too long', `${'0'.repeat(13)}\r\n`, 'a chunk line over the size limit'],
  ['an endless extension', `5;${'x'.repeat(1_100)}`, 'a chunk line over the size limit'],
  ['an odd extension', '5;a b\r\nhello\r\n', 'an invalid chunk extension'],
  ['a bare LF behind the size', '5\nhello\r\n', 'an invalid chunk size'],
  ['content that goes on', '5\r\nhello!\r\n', 'longer than its declared size'],
  ['a bare LF behind the content', '5\r\nhello\n', 'longer than its declared size'],
  ['a length among the trailers', '0\r\nContent-Length: 5\r\n\r\n', 'as a trailer'],
  ['a chunk of 2 GiB', '80000000\r\n', 'a chunk of 2 GiB or more'],
  ['a chunk of 4 GiB and some', '100000005\r\nhello\r\n0\r\n\r\n', 'a chunk of 2 GiB or more'],
  ...LATE.map((name) => [`${name} as a trailer`, `0\r\n${name}: 1\r\n\r\n`, name] as const),
  ['a folded trailer', '0\r\nX: a\r\n b\r\n\r\n', 'a folded field'],
  ['endless trailers', `0\r\nX: ${'x'.repeat(17_000)}`, 'more than 16384 bytes'],
]

describe('a malformed request', () => {
  it.each(MALFORMED)('with %s gets 400 and reaches no device', async (_what, bytes, says) => {
    const service = await startScriptedService('HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n')
    const site = await startIngressSite({ service: service.port })
    const client = RawClient.connect(site.addresses.http.port)
    client.send(`${bytes}GET /smuggled HTTP/1.1\r\n${HOST}\r\n`)
    expect(await client.end()).toBe('end')
    expect(client.text).toMatch(/^HTTP\/1\.1 400 Bad Request\r\n/)
    expect(client.text).toContain(says)
    expect(fieldsOf(client.text)).toMatchObject({
      connection: 'close',
      'ngrok-error-code': 'ERR_GATEWAY_BAD_REQUEST',
    })
    expect(client.text.match(/^HTTP/gm)).toHaveLength(1)
    expect(service.requests).toEqual([])
    expect(site.endpoint.traffic.requests).toBe(0)
  })

  it.each(MALFORMED_BODIES)('body with %s gets 400', async (_what, body, says) => {
    const service = await startScriptedService('')
    const site = await startIngressSite({ service: service.port })
    const client = RawClient.connect(site.addresses.http.port)
    client.send(`POST / HTTP/1.1\r\n${HOST}Transfer-Encoding: chunked\r\n\r\n`)
    client.send(body)
    expect(await client.end()).toBe('end')
    expect(client.text).toMatch(/^HTTP\/1\.1 400 Bad Request\r\n/)
    expect(client.text).toContain(says)
  })
})

describe('a request beyond a limit', () => {
  async function answerTo(bytes: string): Promise<string> {
    const site = await startIngressSite({ service: 1 })
    const client = RawClient.connect(site.addresses.http.port)
    client.send(bytes)
    await client.end()
    return client.text
  }

  it('gets 431 for too many bytes of head', async () => {
    const answer = await answerTo(`GET /${'x'.repeat(70_000)}`)
    expect(answer).toContain('HTTP/1.1 431 Request Header Fields Too Large')
    expect(fieldsOf(answer)['ngrok-error-code']).toBe('ERR_GATEWAY_HEAD_TOO_LARGE')
  })

  it('gets 431 for too many fields', async () => {
    expect(await answerTo(`GET / HTTP/1.1\r\n${'X: y\r\n'.repeat(257)}`)).toContain(
      'more than 256 fields',
    )
  })

  it('gets 417 for an expectation that nobody knows', async () => {
    expect(await answerTo(`GET / HTTP/1.1\r\n${HOST}Expect: tea\r\n\r\n`)).toContain(
      'HTTP/1.1 417 Expectation Failed',
    )
  })
})

it('answers TRACE with 501: it would show cookies to scripts', async () => {
  const service = await startScriptedService('HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n')
  const site = await startIngressSite({ service: service.port })
  const client = RawClient.connect(site.addresses.http.port)
  client.send(`TRACE / HTTP/1.1\r\n${HOST}Cookie: secret\r\n\r\n`)
  expect(await client.end()).toBe('end')
  expect(client.text).toMatch(/^HTTP\/1\.1 501 Not Implemented\r\n/)
  expect(fieldsOf(client.text)['ngrok-error-code']).toBe('ERR_GATEWAY_NOT_IMPLEMENTED')
  expect(client.text).not.toContain('secret')
  expect(service.requests).toEqual([])
})

it('takes what only looks unusual', async () => {
  const service = await startScriptedService('HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n')
  const site = await startIngressSite({ service: service.port })
  const client = RawClient.connect(site.addresses.http.port)
  client.send(
    `POST / HTTP/1.1\r\n${HOST}X_Custom: 1\r\nUser_Agent: me\r\nTransfer-Encoding: chunked\r\n\r\n` +
      '5\r\nhello\r\n0\r\nX-Sum: 1\r\nETag: x\r\nX_Note: 1\r\n\r\n',
  )
  expect(await client.receive('\r\n\r\n')).toContain('200 OK')
  expect(service.requests.join('')).toMatch(/X_Custom: 1\r\nUser_Agent: me.*X-Sum: 1.*X_Note: 1/s)
})

it.each(['4294967301', '9007199254740991'])('passes a length of %s on', async (length) => {
  const service = await startScriptedService('HTTP/1.1 413 No\r\nContent-Length: 0\r\n\r\n')
  const site = await startIngressSite({ service: service.port })
  const client = RawClient.connect(site.addresses.http.port)
  client.send(`PUT / HTTP/1.1\r\n${HOST}Content-Length: ${length}\r\n\r\nx`)
  expect(await client.receive('\r\n\r\n')).toContain('413 No')
  expect(service.requests.join('')).toContain(`Content-Length: ${length}\r\n`)
})

it('takes one empty line before a request', async () => {
  const service = await startScriptedService('HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n')
  const site = await startIngressSite({ service: service.port })
  const client = RawClient.connect(site.addresses.http.port)
  client.send(`\r\nGET / HTTP/1.1\r\n${HOST}\r\n`)
  expect(await client.receive('\r\n\r\n')).toContain('200 OK')
})
