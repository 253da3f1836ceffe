import type { Socket } from 'node:net'
import { gunzipSync } from 'node:zlib'
import { describe, expect, it } from 'vitest'
import { systemClock } from '../../../src/base/clock.ts'
import { createDeferred } from '../../../src/base/deferred.ts'
import { CONTINUE, type Outcome, respond } from '../../../src/policy/exchange/outcome.ts'
import type { PolicyExchange } from '../../../src/policy/exchange/policy-exchange.ts'
import { type CompiledPolicy, compilePolicy } from '../../../src/policy/policy.ts'
import { captureLog } from '../../helpers/captured-log.ts'
import { eventually } from '../../helpers/eventually.ts'
import { startIngressSite } from '../../helpers/ingress-site.ts'
import {
  fieldsOf,
  RawClient,
  startRawService,
  startScriptedService,
} from '../../helpers/raw-http.ts'

const GET = 'GET /a?b=c HTTP/1.1\r\nHost: a.test\r\n\r\n'
const OK = 'HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok'

interface Action {
  readonly type: string
  readonly config?: Record<string, unknown>
}

const computed = (expression: string) => `\${${expression}}`

/** A real policy with the actions in one rule per phase. */
function policyOf(phases: Readonly<Record<string, readonly Action[]>>): CompiledPolicy {
  const rules = Object.entries(phases).map(([phase, actions]) => [phase, [{ actions }]])
  return compilePolicy(Object.fromEntries(rules), {
    clock: systemClock,
    log: captureLog().log,
    hasInternal: () => true,
  })
}

async function siteWith(policy: Partial<CompiledPolicy>, ...answers: string[]) {
  const service = await startScriptedService(...(answers.length > 0 ? answers : [OK]))
  const site = await startIngressSite({ service: service.port, policy })
  return { service, site, client: RawClient.connect(site.addresses.http.port) }
}

describe('a policy', () => {
  it('changes the heads of request and response', async () => {
    const { service, client } = await siteWith(
      policyOf({
        on_http_request: [
          {
            type: 'add-headers',
            config: { headers: { 'x-in': computed('conn.client_ip'), host: 'b' } },
          },
          { type: 'remove-headers', config: { headers: ['x-forwarded-host', 'accept'] } },
          { type: 'url-rewrite', config: { from: '/a', to: '/z' } },
        ],
        on_http_response: [
          { type: 'add-headers', config: { headers: { 'x-out': computed('res.status_code') } } },
          { type: 'remove-headers', config: { headers: ['server'] } },
        ],
      }),
      OK.replace('Content', 'Server: x\r\nContent'),
    )
    client.send(GET.replace('\r\n\r\n', '\r\nAccept: */*\r\n\r\n'))
    expect(await client.receive('ok')).toBe(OK.replace('\r\n\r\n', '\r\nx-out: 200\r\n\r\n'))
    expect(service.requests).toEqual([
      'GET /z?b=c HTTP/1.1\r\nHost: b\r\n' +
        'x-forwarded-for: 127.0.0.1\r\nx-forwarded-proto: http\r\nx-real-ip: 127.0.0.1\r\n' +
        'forwarded: for=127.0.0.1;host=a.test;proto=http\r\nx-in: 127.0.0.1\r\n\r\n',
    ])
  })

  it('keeps the address of the visitor from the device where it removes all three that tell it', async () => {
    const headers = ['x-forwarded-for', 'x-real-ip', 'forwarded']
    const remove = (names: string[]) =>
      policyOf({ on_http_request: [{ type: 'remove-headers', config: { headers: names } }] })
    const seen = async (names: string[]) => {
      const { service, client } = await siteWith(remove(names))
      client.send(GET)
      await client.receive('ok')
      return service.requests.join()
    }
    expect(await seen(headers)).not.toContain('127.0.0.1')
    for (const left of headers) {
      expect(await seen(headers.filter((name) => name !== left))).toMatch(
        new RegExp(`\r\n${left}: .*127.0.0.1`),
      )
    }
  })

  it('answers instead of the device, and the connection goes on', async () => {
    const { service, site, client } = await siteWith(
      policyOf({ on_http_request: [{ type: 'deny', config: { status_code: 451 } }] }),
    )
    client.send(GET)
    client.send(GET)
    await eventually(() => expect(client.text.match(/^HTTP\/1\.1 451 /gm)).toHaveLength(2))
    expect(service.requests).toEqual([])
    expect(site.endpoint.traffic).toMatchObject({ requests: 2, refused: 2 })
  })

  it('limits a rate with 429 and the time to come back', async () => {
    const config = {
      name: 'x',
      algorithm: 'sliding_window',
      capacity: 1,
      rate: '60s',
      bucket_key: ['conn.client_ip'],
    }
    const { service, client } = await siteWith(
      policyOf({ on_http_request: [{ type: 'rate-limit', config }] }),
    )
    client.send(GET)
    await client.receive('ok')
    client.send(GET)
    const answer = await client.receive('429')
    expect(answer).toMatch(/HTTP\/1\.1 429 Too Many Requests\r\n.*retry-after: [1-9][0-9]?\r\n/s)
    expect(service.requests).toHaveLength(1)
  })

  it('redirects', async () => {
    const { client } = await siteWith(
      policyOf({ on_http_request: [{ type: 'redirect', config: { from: 't/a', to: 't/b' } }] }),
    )
    client.send(GET)
    expect(fieldsOf(await client.receive('\r\n\r\n')).location).toBe('http://a.test/b?b=c')
  })

  it('makes an answer that goes through its response phase', async () => {
    const { client } = await siteWith(
      policyOf({
        on_http_request: [{ type: 'custom-response', config: { status_code: 202, body: 'made' } }],
        on_http_response: [
          { type: 'add-headers', config: { headers: { 'x-seen': 'yes' } } },
          { type: 'compress-response' },
        ],
      }),
    )
    client.send(GET)
    expect(fieldsOf(await client.receive('made'))).toMatchObject({
      'x-seen': 'yes',
      'content-length': '4',
    })
    client.send(GET.replace('\r\n\r\n', '\r\nAccept-Encoding: gzip\r\n\r\n'))
    await client.receive('\r\n0\r\n\r\n')
    expect(client.text).toContain('transfer-encoding: chunked')
  })

  it('replaces the answer of the device', async () => {
    const { service, client } = await siteWith(
      policyOf({
        on_http_response: [{ type: 'custom-response', config: { status_code: 503, body: 'no' } }],
      }),
      `${OK.replace('h: 2', 'h: 200000')}${'x'.repeat(199_998)}`,
    )
    client.send(GET)
    expect(await client.receive('\r\n\r\nno')).toMatch(/^HTTP\/1\.1 503 Service Unavailable/)
    client.send(GET)
    await eventually(() => expect(client.text.match(/HTTP\/1\.1 503/g)).toHaveLength(2))
    expect(service.requests).toHaveLength(2)
  })

  it('drops the connection, at its first request or at each', async () => {
    for (const phase of ['on_tcp_connect', 'on_http_request']) {
      const { service, client } = await siteWith(
        policyOf({ [phase]: [{ type: 'close-connection' }] }),
      )
      client.send(GET)
      expect(await client.end()).toBe('ECONNRESET')
      expect(service.requests).toEqual([])
    }
  })

  it('judges a connection once', async () => {
    let connects = 0
    const { client } = await siteWith({
      hasConnectRules: true,
      onTcpConnect: (exchange: PolicyExchange) => {
        connects += 1
        expect(exchange.request).toBeUndefined()
        return CONTINUE
      },
      onHttpRequest: () => CONTINUE,
    })
    client.send(GET)
    await client.receive('ok')
    client.send(GET)
    await eventually(() => expect(client.text).toBe(OK.repeat(2)))
    expect(connects).toBe(1)
  })

  it('hands a request on to an internal endpoint and sees its response', async () => {
    const { site, service, client } = await siteWith(
      policyOf({
        on_http_request: [{ type: 'forward-internal', config: { url: 'https://b.internal' } }],
        on_http_response: [{ type: 'add-headers', config: { headers: { 'x-outer': '1' } } }],
      }),
    )
    site.bind(
      'b.internal',
      'https',
      policyOf({
        on_http_request: [{ type: 'add-headers', config: { headers: { 'x-inner': '1' } } }],
        on_http_response: [{ type: 'add-headers', config: { headers: { 'x-inner': '1' } } }],
      }),
    )
    client.send(GET)
    expect(fieldsOf(await client.receive('ok'))).toMatchObject({ 'x-inner': '1', 'x-outer': '1' })
    expect(fieldsOf(service.requests[0] ?? '')).toMatchObject({ host: 'a.test', 'x-inner': '1' })
    expect(site.sdk.headers[0]?.Id).toBe('ep_b.internal')
    const [outer, inner] = [...site.registry.all()].map(({ traffic }) => traffic)
    expect(inner).toMatchObject({ requests: 1, active: 0, bytesOut: client.length })
    expect(inner?.bytesIn).toBe(service.requests[0]?.length)
    // What its service did with it is that endpoint's which asked it.
    expect([outer, inner].map((it) => it?.outcomes.counts.answered)).toEqual([0, 1])
    const { outcomes, lastBegun } = inner ?? {}
    expect({ ...outer, outcomes, lastBegun }).toEqual({ ...inner })
  })

  it('sees TLS, and the numbers of the connection', async () => {
    const seen: unknown[] = []
    const { site } = await siteWith({
      hasRequestRules: true,
      onHttpRequest: ({ connection, endpoint, request }: PolicyExchange) => {
        const { clientIp, serverPort, tls, bytesIn } = connection
        seen.push([clientIp, serverPort, tls?.version, tls?.serverName, bytesIn > 0])
        seen.push([endpoint.port, request?.scheme, request?.host])
        return CONTINUE
      },
    })
    const client = RawClient.connectTls(site.addresses.https.port, site.caPem)
    client.send(GET.replace('a.test', 'A.test.:8443'))
    await client.receive('ok')
    const { port } = site.addresses.https
    expect(seen).toEqual([
      ['127.0.0.1', port, 'TLSv1.3', 'localhost', true],
      [port, 'https', 'a.test'],
    ])
  })

  it('reads what Node does not tell of the certificate of the gateway', async () => {
    const mark = (name: string, expression: string) => ({ [name]: computed(expression) })
    const { site } = await siteWith(
      policyOf({
        on_http_response: [
          {
            type: 'add-headers',
            config: {
              headers: {
                ...mark('x-algorithm', 'conn.tls.server.signature_algorithm'),
                ...mark('x-ids', "conn.tls.server.extensions.map(e, e.id).join(' ')"),
                ...mark('x-client', 'has(conn.tls.client.extensions)'),
              },
            },
          },
        ],
      }),
    )
    const client = RawClient.connectTls(site.addresses.https.port, site.caPem)
    client.send(GET)
    expect(fieldsOf(await client.receive('ok'))).toMatchObject({
      'x-algorithm': 'ECDSA-SHA256',
      'x-ids': '2.5.29.17',
      'x-client': 'false',
    })
  })

  it('that fails is 500 ERR_NGROK_2254', async () => {
    const { site, client } = await siteWith({
      hasRequestRules: true,
      onHttpRequest: () => Promise.reject(new Error('a bug')),
    })
    client.send(GET)
    expect(await client.receive('ERR_NGROK_2254)\n')).toMatch(/^HTTP\/1\.1 500 /)
    expect(site.captured.text()).toContain('policy failed')
  })
})

describe('when the body of a request has come', () => {
  const header = (name: string, expression: string) => ({
    type: 'add-headers',
    config: { headers: { [name]: computed(expression) } },
  })
  const HAS_COME = 'has(req.ts.body_received)'
  const SINCE_HEAD = 'req.ts.body_received - req.ts.header_received'
  const LATER = header('x-later', `${HAS_COME} && ${SINCE_HEAD} >= duration('0s')`)
  const POST = 'POST / HTTP/1.1\r\nHost: a.test\r\nContent-Length: 10\r\n\r\nhello'

  /** A service that shows what it got, and answers when that is all. */
  async function serviceUntil(end: string) {
    let received = ''
    const port = await startRawService((socket) => {
      socket.on('data', (chunk: Buffer) => {
        received += String(chunk)
        if (received.endsWith(end)) socket.write(OK)
      })
    })
    return { port, received: () => received }
  }

  async function clientOf(port: number, request: readonly Action[]) {
    const policy = policyOf({ on_http_request: request, on_http_response: [LATER] })
    const site = await startIngressSite({ service: port, policy })
    return RawClient.connect(site.addresses.http.port)
  }

  it('is not known before, and known to the response', async () => {
    const { port, received } = await serviceUntil('world')
    const client = await clientOf(port, [header('x-now', HAS_COME)])
    client.send(POST)
    await eventually(() => expect(received()).toMatch(/x-now: false\r\n/))
    client.send('world')
    expect(fieldsOf(await client.receive('ok'))['x-later']).toBe('true')
  })

  it('is when the head came, without a body', async () => {
    const { port, received } = await serviceUntil('\r\n\r\n')
    const client = await clientOf(port, [header('x-now', `${SINCE_HEAD} == duration('0s')`)])
    client.send(GET)
    expect(fieldsOf(await client.receive('ok'))['x-later']).toBe('true')
    expect(received()).toMatch(/x-now: true\r\n/)
  })

  it('is known after an action that had to read it', async () => {
    const { port, received } = await serviceUntil('world')
    const webhook = { provider: 'github', secret: 'shared', enforce: false }
    const client = await clientOf(port, [
      { type: 'verify-webhook', config: webhook },
      header('x-now', HAS_COME),
    ])
    client.send(`${POST}world`)
    await client.receive('ok')
    expect(received()).toMatch(/x-now: true\r\n/)
  })

  it('is not known to a response that comes before', async () => {
    const { port } = await serviceUntil('hello')
    const client = await clientOf(port, [header('x-now', HAS_COME)])
    client.send(POST)
    expect(fieldsOf(await client.receive('ok'))['x-later']).toBe('false')
  })
})

describe('a policy that has to wait', () => {
  it('holds the request back, body and all', async () => {
    const outcome = createDeferred<Outcome>()
    const received: string[] = []
    const port = await startRawService((socket) => {
      socket.on('data', (chunk: Buffer) => {
        received.push(String(chunk))
        if (String(chunk).endsWith('world')) socket.write(OK)
      })
    })
    const site = await startIngressSite({
      service: port,
      policy: { hasRequestRules: true, onHttpRequest: () => outcome.promise },
    })
    const client = RawClient.connect(site.addresses.http.port)
    client.send('POST / HTTP/1.1\r\nHost: a.test\r\nContent-Length: 10\r\n\r\nhello')
    await eventually(() => expect(site.endpoint.traffic.requests).toBe(1))
    client.send('world')
    await new Promise((resolve) => setTimeout(resolve, 30))
    expect(received).toEqual([])
    outcome.resolve(CONTINUE)
    await client.receive('ok')
    expect(received.join('')).toMatch(/\r\n\r\nhelloworld$/)
  })

  it('holds the response back, and passes on what came meanwhile', async () => {
    const outcome = createDeferred<Outcome>()
    const chunked =
      'HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n2\r\nok\r\n0\r\nX: y\r\n\r\n'
    const { site, client } = await siteWith(
      {
        hasResponseRules: true,
        onHttpRequest: () => CONTINUE,
        onHttpResponse: () => outcome.promise,
      },
      chunked,
      OK,
    )
    client.send(GET)
    await eventually(() => expect(site.slots.session.freeSlots).toBeLessThan(448))
    await new Promise((resolve) => setTimeout(resolve, 30))
    expect(client.text).toBe('')
    outcome.resolve(CONTINUE)
    await client.receive('X: y\r\n\r\n')
    client.send(GET)
    expect(await client.receive('\r\n\r\nok')).toBe(chunked + OK)
  })

  it('is forgotten with the client that does not wait', async () => {
    const outcome = createDeferred<Outcome>()
    const { service, site, client } = await siteWith({
      hasRequestRules: true,
      onHttpRequest: () => outcome.promise,
    })
    client.send(GET)
    await eventually(() => expect(site.endpoint.traffic.requests).toBe(1))
    client.socket.destroy()
    await new Promise((resolve) => setTimeout(resolve, 30))
    outcome.resolve(respond({ status: 200, headers: [], body: '' }))
    await new Promise((resolve) => setTimeout(resolve, 30))
    expect(service.requests).toEqual([])
    expect(site.captured.lines.filter(({ level }) => level === 'error')).toEqual([])
  })

  it('tells those who watch the device how it did', async () => {
    const ends: unknown[] = []
    const { client } = await siteWith(
      {
        hasRequestRules: true,
        onHttpRequest: (exchange: PolicyExchange) => {
          exchange.whenUpstreamEnds((status) => ends.push(status))
          return CONTINUE
        },
      },
      OK.replace('200 OK', '503 No'),
      'nonsense\r\n\r\n',
    )
    client.send(GET)
    await client.receive('ok')
    client.send(GET)
    await client.receive('ERR_NGROK_3004')
    expect(ends).toEqual([503, undefined])
  })
})

describe('a body that a policy works on', () => {
  it('is compressed as it comes, event by event', async () => {
    let socket: Socket | undefined
    const port = await startRawService((accepted) => {
      socket = accepted
      accepted.once('data', () => {
        accepted.write(
          'HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nTransfer-Encoding: chunked\r\n\r\n' +
            '9\r\ndata: 1\n\n\r\n',
        )
      })
    })
    const site = await startIngressSite({
      service: port,
      policy: policyOf({ on_http_response: [{ type: 'compress-response' }] }),
    })
    const client = RawClient.connect(site.addresses.http.port)
    client.send(GET.replace('\r\n\r\n', '\r\nAccept-Encoding: gzip\r\n\r\n'))
    const head = await client.receive('\r\n\r\n')
    expect(fieldsOf(head)).toMatchObject({
      'content-encoding': 'gzip',
      'transfer-encoding': 'chunked',
    })
    // A flushed block of gzip ends with an empty stored one.
    await client.receive('\x00\x00\xff\xff')
    socket?.write('9\r\ndata: 2\n\n\r\n0\r\n\r\n')
    await client.receive('\r\n0\r\n\r\n')
    expect(String(gunzipSync(dechunk(client.bytes)))).toBe('data: 1\n\ndata: 2\n\n')
  })

  it('keeps its backpressure', async () => {
    const total = 6 * 1_048_576
    const port = await startRawService((socket) => {
      socket.once('data', () => {
        socket.write(`HTTP/1.1 200 OK\r\nContent-Length: ${total}\r\n\r\n`)
        socket.write(randomish(total))
      })
    })
    const site = await startIngressSite({
      service: port,
      policy: policyOf({ on_http_response: [{ type: 'compress-response' }] }),
    })
    const client = RawClient.connect(site.addresses.http.port)
    client.send(GET.replace('\r\n\r\n', '\r\nAccept-Encoding: gzip\r\n\r\n'))
    await client.receive('\r\n\r\n')
    client.socket.pause()
    await new Promise((resolve) => setTimeout(resolve, 500))
    client.socket.resume()
    await eventually(() => expect(client.tail).toMatch(/\r\n0\r\n\r\n$/))
    expect(gunzipSync(dechunk(client.bytes)).equals(randomish(total))).toBe(true)
  })

  it('is replaced in request and response, with the right lengths', async () => {
    const { service, client } = await siteWith(
      policyOf({
        on_http_request: [
          {
            type: 'request-body-find-replace',
            config: { replacements: [{ from: 'cat', to: 'horse' }] },
          },
        ],
        on_http_response: [
          {
            type: 'response-body-find-replace',
            config: { replacements: [{ from: 'ok', to: 'fine' }] },
          },
        ],
      }),
      'HTTP/1.1 200 OK\r\nContent-Type: text/plain\r\nTransfer-Encoding: chunked\r\n\r\n2\r\nok\r\n0\r\n\r\n',
    )
    client.send(
      'POST / HTTP/1.1\r\nHost: a.test\r\nContent-Type: text/plain\r\nExpect: 100-continue\r\n' +
        'Transfer-Encoding: chunked\r\n\r\n',
    )
    await client.receive('HTTP/1.1 100 Continue\r\n\r\n')
    client.send('3\r\ncat\r\n0\r\n\r\n')
    const answer = await client.receive('fine')
    expect(answer).toMatch(/content-length: 4\r\n\r\nfine$/)
    const sent = fieldsOf(service.requests[0] ?? '')
    expect(sent).toMatchObject({ 'content-length': '5' })
    expect(sent).not.toHaveProperty('expect')
    expect(sent).not.toHaveProperty('transfer-encoding')
    client.send(GET)
    await eventually(() => expect(client.text.match(/fine/g)).toHaveLength(2))
  })

  it('is not looked at when its framing outgrows it', async () => {
    const seen: (Buffer | undefined)[] = []
    const { client } = await siteWith({
      hasRequestRules: true,
      onHttpRequest: async (exchange: PolicyExchange) => {
        seen.push(await exchange.request?.readBody(50_000))
        return respond({ status: 413, headers: [], body: '' })
      },
    })
    client.send('POST / HTTP/1.1\r\nHost: a.test\r\nTransfer-Encoding: chunked\r\n\r\n')
    client.send(`1;${'x'.repeat(1_000)}\r\na\r\n`.repeat(100))
    await client.receive('HTTP/1.1 413')
    expect(seen).toEqual([undefined])
  })

  it('of many small chunks reaches the device when it was looked at', async () => {
    const chunks = 200_000
    let received = 0
    const port = await startRawService((socket) => {
      let tail = ''
      socket.on('data', (chunk: Buffer) => {
        received += chunk.length
        tail = (tail + chunk.toString('latin1')).slice(-8)
        if (tail.endsWith('\r\n0\r\n\r\n')) socket.write(OK)
      })
    })
    const site = await startIngressSite({
      service: port,
      policy: {
        hasRequestRules: true,
        onHttpRequest: async (exchange: PolicyExchange) => {
          await exchange.request?.readBody(1_048_576)
          return CONTINUE
        },
      },
    })
    const client = RawClient.connect(site.addresses.http.port)
    client.send('POST / HTTP/1.1\r\nHost: a.test\r\nTransfer-Encoding: chunked\r\n\r\n')
    client.send(`${'5\r\nhello\r\n'.repeat(chunks)}0\r\n\r\n`)
    expect(await client.receive('ok')).toMatch(/^HTTP\/1\.1 200 /)
    expect(received).toBeGreaterThan(chunks * '5\r\nhello\r\n'.length)
  })

  it('that cannot be worked on is 500 ERR_NGROK_2254', async () => {
    const broken = 'HTTP/1.1 200 OK\r\nContent-Encoding: gzip\r\nContent-Length: 2\r\n\r\nok'
    const { client } = await siteWith(
      policyOf({
        on_http_response: [
          {
            type: 'response-body-find-replace',
            config: { replacements: [{ from: 'ok', to: 'fine' }] },
          },
        ],
      }),
      broken,
    )
    client.send(GET)
    expect(await client.receive('ERR_NGROK_2254)\n')).toMatch(/^HTTP\/1\.1 500 /)
  })

  it('reaches the device as it was when a policy only looks at it', async () => {
    const seen: (string | undefined)[] = []
    const received: string[] = []
    const port = await startRawService((socket) => {
      socket.on('data', (chunk: Buffer) => {
        received.push(String(chunk))
        if (received.join('').endsWith('0\r\n\r\n')) socket.write(OK)
      })
    })
    const site = await startIngressSite({
      service: port,
      policy: {
        hasRequestRules: true,
        onHttpRequest: async (exchange: PolicyExchange) => {
          for (const limit of [3, 100]) {
            seen.push((await exchange.request?.readBody(limit))?.toString())
          }
          return CONTINUE
        },
      },
    })
    const client = RawClient.connect(site.addresses.http.port)
    client.send(
      'POST / HTTP/1.1\r\nHost: a.test\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nhello\r\n',
    )
    await eventually(() => expect(seen).toEqual([undefined]))
    client.send('0\r\n\r\n')
    await client.receive('ok')
    expect(seen).toEqual([undefined, 'hello'])
    expect(received.join('')).toMatch(/\r\n\r\n5\r\nhello\r\n0\r\n\r\n$/)
  })
})

/** The content of the chunks behind a head. */
function dechunk(bytes: Buffer): Buffer {
  const content: Buffer[] = []
  let at = bytes.indexOf('\r\n\r\n') + 4
  for (;;) {
    const lineEnd = bytes.indexOf('\r\n', at)
    const size = Number.parseInt(bytes.toString('latin1', at, lineEnd), 16)
    if (size === 0) return Buffer.concat(content)
    content.push(bytes.subarray(lineEnd + 2, lineEnd + 2 + size))
    at = lineEnd + 2 + size + 2
  }
}

/** Bytes that do not compress well. */
function randomish(length: number): Buffer {
  const bytes = Buffer.allocUnsafe(length)
  let state = 1
  for (let at = 0; at < length; at += 1) {
    state = (Math.imul(state, 1_103_515_245) + 12_345) | 0
    bytes[at] = state >>> 16
  }
  return bytes
}
