import { once } from 'node:events'
import { createServer, request as httpRequest } from 'node:http'
import type { AddressInfo } from 'node:net'
import { describe, expect, it, onTestFinished } from 'vitest'
import { eventually } from '../../helpers/eventually.ts'
import { startIngressSite } from '../../helpers/ingress-site.ts'
import { ManualClock } from '../../helpers/manual-clock.ts'
import {
  fieldsOf,
  RawClient,
  startRawService,
  startScriptedService,
} from '../../helpers/raw-http.ts'

const OK = 'HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok'
const GET = 'GET /x?y=1 HTTP/1.1\r\nHost: a.test\r\n\r\n'

async function siteWith(...answers: string[]) {
  const service = await startScriptedService(...answers)
  const site = await startIngressSite({ service: service.port })
  return { service, site, client: RawClient.connect(site.addresses.http.port) }
}

describe('an exchange', () => {
  it('passes a request to the device and its response back', async () => {
    const answer = 'HTTP/1.1 201 Made it\r\nX-Device: 7\r\nContent-Length: 5\r\n\r\nhello'
    const { service, client } = await siteWith(answer)
    client.send('GET /x?y=1 HTTP/1.1\r\nHost: a.test\r\nAccept: */*\r\n\r\n')
    expect(await client.receive('hello')).toBe(answer)
    expect(service.requests).toEqual([
      'GET /x?y=1 HTTP/1.1\r\nHost: a.test\r\nAccept: */*\r\n' +
        'x-forwarded-for: 127.0.0.1\r\nx-forwarded-proto: http\r\nx-forwarded-host: a.test\r\n' +
        'x-real-ip: 127.0.0.1\r\nforwarded: for=127.0.0.1;host=a.test;proto=http\r\n\r\n',
    ])
  })

  it('keeps the connection and the proxy stream for the next one', async () => {
    const { service, site, client } = await siteWith(OK)
    for (let round = 1; round <= 3; round += 1) {
      client.send(GET)
      await eventually(() => expect(client.text).toBe(OK.repeat(round)))
    }
    expect(service.connections()).toBe(1)
    expect(site.sdk.headers).toEqual([
      expect.objectContaining({ Id: site.endpoint.id, Proto: 'https' }),
    ])
    expect(site.sdk.headers[0]?.ClientAddr).toBe(`127.0.0.1:${client.socket.localPort}`)
  })

  it('looks at a pipelined request only when the one before it is answered', async () => {
    const turns: string[] = []
    const port = await startRawService((socket) => {
      socket.on('data', (chunk: Buffer) => {
        for (const [, path] of String(chunk).matchAll(/^GET (\S+)/gm)) turns.push(`asked ${path}`)
        setTimeout(() => {
          turns.push('answered')
          socket.write(OK)
        }, 30)
      })
    })
    const site = await startIngressSite({ service: port })
    const client = RawClient.connect(site.addresses.http.port)
    client.send(['/1', '/2', '/3'].map((path) => GET.replace('/x?y=1', path)).join(''))
    await eventually(() => expect(client.text).toBe(OK.repeat(3)))
    expect(turns).toEqual(['/1', '/2', '/3'].flatMap((path) => [`asked ${path}`, 'answered']))
  })

  it('answers a client that wants the connection closed, and closes it', async () => {
    const { client } = await siteWith(OK)
    client.send('GET / HTTP/1.1\r\nHost: a.test\r\nConnection: close\r\n\r\n')
    expect(await client.end()).toBe('end')
    expect(fieldsOf(client.text).connection).toBe('close')
    expect(client.text.endsWith('ok')).toBe(true)
  })

  it('takes the other way for a service that closes after each response', async () => {
    const closing = OK.replace('Content-Length', 'Connection: close\r\nContent-Length')
    const { service, client } = await siteWith(closing)
    client.send(GET)
    await client.receive('ok')
    client.send(GET)
    await eventually(() => expect(client.text).toBe(OK.repeat(2)))
    expect(service.connections()).toBe(2)
  })

  it('passes a body by length and one in chunks, with trailers', async () => {
    let received = ''
    const port = await startRawService((socket) => {
      socket.on('data', (chunk: Buffer) => {
        received += chunk.toString('latin1')
        if (/(hello|\r\n\r\n)$/.test(received)) {
          socket.write(
            'HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\nTrailer: X-Sum\r\n\r\n' +
              '3;q=1\r\nabc\r\n0\r\nX-Sum: 9\r\n\r\n',
          )
        }
      })
    })
    const site = await startIngressSite({ service: port })
    const client = RawClient.connect(site.addresses.http.port)
    client.send('POST / HTTP/1.1\r\nHost: a.test\r\nContent-Length: 5\r\n\r\nhel')
    client.send('lo')
    expect(await client.receive('X-Sum: 9')).toContain('\r\n\r\n3\r\nabc\r\n0\r\n')
    expect(received).toMatch(/\r\nContent-Length: 5\r\n.*\r\n\r\nhello$/s)
    received = ''
    client.send('POST / HTTP/1.1\r\nHost: a.test\r\nTE: trailers\r\n')
    client.send('Transfer-Encoding: chunked\r\n\r\n5;a=b\r\nhel')
    client.send('lo\r\n0\r\nX-In: 3\r\n\r\n')
    await eventually(() => expect(client.text.match(/X-Sum: 9\r\n\r\n/g)).toHaveLength(2))
    expect(received).toMatch(/TE: trailers\r\n\r\n5;a=b\r\nhello\r\n0\r\nX-In: 3\r\n\r\n$/)
  })

  it.each(['LABEL', 'VERSION-CONTROL', 'RPC_IN_DATA', 'DESCRIBE'])(
    'passes the method %s on, with its body',
    async (method) => {
      const service = await startScriptedService('HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok')
      const site = await startIngressSite({ service: service.port })
      const client = RawClient.connect(site.addresses.http.port)
      client.send(`${method} /x HTTP/1.1\r\nHost: a.test\r\nContent-Length: 4\r\n\r\nbody${GET}`)
      await eventually(() => expect(client.text.match(/200 OK/g)).toHaveLength(2))
      expect(service.requests[0]).toMatch(new RegExp(`^${method} /x HTTP/1.1\r\n`))
      expect(service.requests[1]).toMatch(/^bodyGET /)
    },
  )

  it('answers HEAD, 204 and 304 without a body, and goes on', async () => {
    const { client } = await siteWith(
      'HTTP/1.1 200 OK\r\nContent-Length: 500\r\n\r\n',
      'HTTP/1.1 204 No Content\r\nContent-Length: 0\r\n\r\n',
      'HTTP/1.1 304 Not Modified\r\nContent-Length: 7\r\n\r\n',
      OK,
    )
    client.send('HEAD / HTTP/1.1\r\nHost: a.test\r\n\r\n')
    await client.receive('Content-Length: 500\r\n\r\n')
    client.send(GET)
    await client.receive('HTTP/1.1 204 No Content\r\n\r\n')
    client.send(GET)
    await client.receive('Content-Length: 7\r\n\r\n')
    client.send(GET)
    expect(await client.receive('ok')).toMatch(/Content-Length: 7\r\n\r\nHTTP\/1.1 200 OK/)
  })

  it('passes 1xx responses on, so that a client may wait for 100 before its body', async () => {
    const port = await startRawService((socket) => {
      socket.once('data', () => {
        socket.write('HTTP/1.1 103 Early Hints\r\nLink: </s>\r\n\r\nHTTP/1.1 100 Continue\r\n\r\n')
        socket.once('data', (body: Buffer) => socket.write(OK.replace('ok', String(body))))
      })
    })
    const site = await startIngressSite({ service: port })
    const client = RawClient.connect(site.addresses.http.port)
    client.send(
      'PUT / HTTP/1.1\r\nHost: a.test\r\nExpect: 100-continue\r\nContent-Length: 2\r\n\r\n',
    )
    expect(await client.receive('100 Continue\r\n\r\n')).toBe(
      'HTTP/1.1 103 Early Hints\r\nLink: </s>\r\n\r\nHTTP/1.1 100 Continue\r\n\r\n',
    )
    client.send('hi')
    expect(await client.receive('hi')).toMatch(/\r\n\r\nhi$/)
  })

  it.each([
    [
      '1.1',
      'transfer-encoding: chunked\r\nconnection: close\r\n\r\nd\r\nuntil the end\r\n0\r\n\r\n',
    ],
    ['1.0', 'connection: close\r\n\r\nuntil the end'],
  ])('delimits a response without a length for HTTP/%s', async (version, rest) => {
    const port = await startRawService((socket) => {
      socket.once('data', () => socket.end('HTTP/1.0 200 OK\r\nX-Old: 1\r\n\r\nuntil the end'))
    })
    const site = await startIngressSite({ service: port })
    const client = RawClient.connect(site.addresses.http.port)
    client.send(`GET / HTTP/${version}\r\nHost: a.test\r\nConnection: close\r\n\r\n`)
    expect(await client.end()).toBe('end')
    expect(client.text).toBe(`HTTP/1.1 200 OK\r\nX-Old: 1\r\n${rest}`)
  })

  it('gives an HTTP/1.0 client the content of chunks, and keep-alive only on demand', async () => {
    const chunked =
      'HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n2\r\nok\r\n1\r\n!\r\n0\r\n\r\n'
    const { site, client } = await siteWith(OK, chunked)
    client.send('GET / HTTP/1.0\r\nHost: a.test\r\nConnection: keep-alive\r\n\r\n')
    expect(fieldsOf(await client.receive('ok')).connection).toBe('keep-alive')
    client.send('GET / HTTP/1.0\r\nHost: a.test\r\nConnection: keep-alive\r\n\r\n')
    expect(await client.end()).toBe('end')
    expect(client.text).toMatch(/HTTP\/1.1 200 OK\r\nconnection: close\r\n\r\nok!$/)
    const short = RawClient.connect(site.addresses.http.port)
    short.send('GET / HTTP/1.0\r\nHost: a.test\r\n\r\n')
    expect(await short.end()).toBe('end')
  })

  it('passes events on as they come', async () => {
    let sendNext = () => {}
    const server = createServer((_request, response) => {
      response.setHeader('content-type', 'text/event-stream')
      response.write('data: 1\n\n')
      sendNext = () => response.write('data: 2\n\n')
    })
    server.listen(0, '127.0.0.1')
    await once(server, 'listening')
    onTestFinished(() => {
      server.closeAllConnections()
      server.close()
    })
    const site = await startIngressSite({ service: (server.address() as AddressInfo).port })
    const client = RawClient.connect(site.addresses.http.port)
    client.send(GET)
    await client.receive('data: 1')
    sendNext()
    await client.receive('data: 2')
  })

  it('serves the same over TLS, and says so to the device', async () => {
    const { service, site } = await siteWith(OK)
    const client = RawClient.connectTls(site.addresses.https.port, site.caPem)
    client.send('GET / HTTP/1.1\r\nHost: a.test:8443\r\nX-Forwarded-Proto: http\r\n\r\n')
    await client.receive('ok')
    expect(fieldsOf(service.requests[0] ?? '')).toMatchObject({
      host: 'a.test:8443',
      'x-forwarded-proto': 'https',
      'x-forwarded-host': 'a.test:8443',
    })
  })

  it('finds the endpoint by name alone: any case, any port, with a dot at the end', async () => {
    const { site, client } = await siteWith(OK)
    site.bind('*.wild.test')
    for (const [index, host] of ['A.Test', 'a.test:1', 'a.test.', 'x.y.wild.test'].entries()) {
      client.send(`GET / HTTP/1.1\r\nHost: ${host}\r\n\r\n`)
      await eventually(() => expect(client.text).toBe(OK.repeat(index + 1)))
    }
  })

  it('counts what goes through an endpoint', async () => {
    const { site, client } = await siteWith(OK)
    client.send('POST / HTTP/1.1\r\nHost: a.test\r\nContent-Length: 3\r\n\r\nabc')
    await client.receive('ok')
    const { traffic } = site.endpoint
    expect(traffic).toMatchObject({ requests: 1, refused: 0, bytesOut: OK.length })
    expect(traffic.bytesIn).toBeGreaterThan(3 + GET.length)
  })

  it('writes one line per exchange at debug level, without the query', async () => {
    const { site, client } = await siteWith(OK)
    client.send('GET /path?token=canary HTTP/1.1\r\nHost: a.test\r\n\r\n')
    await client.receive('ok')
    expect(site.captured.lines.filter(({ msg }) => msg === 'exchange')).toEqual([
      expect.objectContaining({ method: 'GET', host: 'a.test', path: '/path', status: 200 }),
    ])
    expect(site.captured.text()).not.toContain('canary')
  })
})

describe('a request that comes while the response is under way', () => {
  it('is read to its end when that is near, and the connection goes on', async () => {
    const { client } = await siteWith(OK)
    client.send('POST / HTTP/1.1\r\nHost: a.test\r\nContent-Length: 6\r\n\r\nabc')
    await client.receive('ok')
    client.send('def')
    client.send(GET)
    await eventually(() => expect(client.text).toBe(OK.repeat(2)))
  })

  it('is cut off when it does not end soon', async () => {
    const service = await startScriptedService(OK)
    const clock = new ManualClock()
    const site = await startIngressSite({
      service: service.port,
      clock,
      limits: { discardedBytes: 1_000, lingerMs: 50, sweepMs: 10 },
    })
    const client = RawClient.connect(site.addresses.http.port)
    client.send('POST / HTTP/1.1\r\nHost: a.test\r\nContent-Length: 60000\r\n\r\nabc')
    await client.receive('ok')
    client.send('x'.repeat(5_000))
    await eventually(async () => {
      await clock.advance(10)
      expect(client.ending).toBe('end')
    })
  })
})

describe('a pooled stream whose service has just hung up', () => {
  const HANGS_UP_ON_SECOND = (answers: string[]) =>
    startRawService((socket) => {
      socket.once('data', () => {
        socket.write(answers.shift() ?? OK)
        socket.once('data', () => socket.destroy())
      })
    })

  it('is replaced once for a request that can be repeated', async () => {
    const site = await startIngressSite({ service: await HANGS_UP_ON_SECOND([]) })
    const client = RawClient.connect(site.addresses.http.port)
    client.send(GET)
    await client.receive('ok')
    client.send(GET)
    await eventually(() => expect(client.text).toBe(OK.repeat(2)))
    expect(site.sdk.headers).toHaveLength(2)
  })

  it('is not for a request that cannot', async () => {
    const site = await startIngressSite({ service: await HANGS_UP_ON_SECOND([]) })
    const client = RawClient.connect(site.addresses.http.port)
    client.send(GET)
    await client.receive('ok')
    client.send('POST / HTTP/1.1\r\nHost: a.test\r\nContent-Length: 1\r\n\r\nx')
    const answer = await client.receive('ERR_GATEWAY_STALE_CONNECTION)')
    expect(answer).toContain('HTTP/1.1 502 Bad Gateway')
    expect(site.sdk.headers).toHaveLength(1)
  })
})

it('works for a client of Node with an agent', async () => {
  const service = await startScriptedService(OK)
  const site = await startIngressSite({ service: service.port })
  const [response] = await once(
    httpRequest({
      port: site.addresses.http.port,
      headers: { host: 'a.test' },
    }).end(),
    'response',
  )
  expect(response.statusCode).toBe(200)
  response.resume()
})
