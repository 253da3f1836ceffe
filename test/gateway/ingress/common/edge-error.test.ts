import { describe, expect, it } from 'vitest'
import { ErrorCode } from '../../../../src/muxado/error-code.ts'
import { eventually } from '../../../helpers/eventually.ts'
import { type IngressSiteOptions, startIngressSite } from '../../../helpers/ingress-site.ts'
import {
  fieldsOf,
  RawClient,
  startRawService,
  startScriptedService,
} from '../../../helpers/raw-http.ts'

const GET = 'GET / HTTP/1.1\r\nHost: a.test\r\n\r\n'
const OK = 'HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok'
const NOTHING_LISTENS = 1

async function connectTo(options: IngressSiteOptions) {
  const site = await startIngressSite(options)
  return { site, client: RawClient.connect(site.addresses.http.port) }
}

describe('an answer of the gateway itself', () => {
  it('is 404 ERR_NGROK_3200 where no endpoint is online, and the connection goes on', async () => {
    const { site, client } = await connectTo({ service: NOTHING_LISTENS })
    client.send('GET / HTTP/1.1\r\nHost: nobody.test\r\n\r\n')
    const answer = await client.receive('ERR_NGROK_3200)\n')
    expect(answer).toContain('HTTP/1.1 404 Not Found\r\n')
    expect(fieldsOf(answer)).toMatchObject({
      'ngrok-error-code': 'ERR_NGROK_3200',
      'content-type': 'text/plain; charset=utf-8',
      'cache-control': 'no-store',
    })
    site.bind('nobody.test')
    client.send('GET / HTTP/1.1\r\nHost: nobody.test\r\n\r\n')
    await client.receive('ERR_NGROK_8012')
  })

  it('is a page for a browser', async () => {
    const { client } = await connectTo({ service: NOTHING_LISTENS })
    client.send('GET / HTTP/1.1\r\nHost: no.test\r\nAccept: text/html,*/*;q=0.8\r\n\r\n')
    const answer = await client.receive('</html>')
    expect(fieldsOf(answer)['content-type']).toBe('text/html; charset=utf-8')
    expect(answer).toContain('<dd>ERR_NGROK_3200</dd>')
  })

  it('has no body for HEAD', async () => {
    const { client } = await connectTo({ service: NOTHING_LISTENS })
    client.send('HEAD / HTTP/1.1\r\nHost: no.test\r\nConnection: close\r\n\r\n')
    await client.end()
    expect(client.text).toMatch(/\r\ncontent-length: [1-9][0-9]*\r\n.*\r\n\r\n$/s)
  })

  it('swallows a short body that was on its way, and goes on', async () => {
    const { client } = await connectTo({ service: NOTHING_LISTENS })
    client.send('POST / HTTP/1.1\r\nHost: no.test\r\nContent-Length: 5\r\n\r\nhe')
    await client.receive('ERR_NGROK_3200)\n')
    client.send(`llo${GET.replace('a.test', 'no.test')}`)
    await eventually(() => expect(client.text.match(/HTTP\/1\.1 404/g)).toHaveLength(2))
  })

  it('closes behind a long body, and to who waits for a 100', async () => {
    const { site, client } = await connectTo({ service: NOTHING_LISTENS })
    client.send('POST / HTTP/1.1\r\nHost: no.test\r\nContent-Length: 1000000\r\n\r\nhe')
    expect(await client.end()).toBe('end')
    expect(fieldsOf(client.text).connection).toBe('close')
    const waiting = RawClient.connect(site.addresses.http.port)
    waiting.send(
      'POST / HTTP/1.1\r\nHost: no.test\r\nExpect: 100-continue\r\nContent-Length: 9\r\n\r\n',
    )
    expect(await waiting.end()).toBe('end')
    expect(waiting.text).toMatch(/^HTTP\/1\.1 404/)
  })
})

describe('a device that cannot answer', () => {
  it.each(['GET', 'HEAD', 'POST'])(
    'is 502 ERR_NGROK_8012 for %s when its service is down',
    async (method) => {
      const { site, client } = await connectTo({ service: NOTHING_LISTENS })
      client.send(`${method} / HTTP/1.1\r\nHost: a.test\r\nConnection: close\r\n\r\n`)
      await client.end()
      expect(client.text).toMatch(/^HTTP\/1\.1 502 Bad Gateway\r\n/)
      expect(fieldsOf(client.text)['ngrok-error-code']).toBe('ERR_NGROK_8012')
      expect(client.text).not.toContain('failed to dial')
      expect(site.endpoint.traffic).toMatchObject({ requests: 1, refused: 1, active: 0 })
      expect([...site.endpoint.traffic.errors]).toEqual([['ERR_NGROK_8012', 1]])
    },
  )

  it("passes the service's own 502 on, whatever it looks like", async () => {
    const body = 'failed to reach the database'
    const own = `HTTP/1.1 502 Bad Gateway\r\nconnection: close\r\ncontent-length: ${body.length}\r\ndate: x\r\n\r\n${body}`
    const service = await startScriptedService(own, own.replace('date: x', 'server: y'))
    const { client } = await connectTo({ service: service.port })
    client.send(GET)
    expect(await client.receive(body)).not.toContain('ngrok-error-code')
    client.send(GET)
    await eventually(() => expect(client.text.split(body)).toHaveLength(3))
  })

  it('takes only the first answer of a connection for a sign that the service is down', async () => {
    const body = 'failed to dial backend: a gateway of its own'
    const own = `HTTP/1.1 502 Bad Gateway\r\nconnection: close\r\ncontent-length: ${body.length}\r\ndate: x\r\n\r\n${body}`
    const service = await startScriptedService(OK, own)
    const { site, client } = await connectTo({ service: service.port })
    client.send(GET)
    await client.receive('ok')
    client.send(GET)
    expect(await client.receive(body)).not.toContain('ngrok-error-code')
    expect(service.connections()).toBe(1)
    expect(site.endpoint.traffic.errors.size).toBe(0)
  })

  it.each([
    ['is not HTTP', 'SSH-2.0-OpenSSH_9.2\r\n\r\n'],
    ['has two lengths', 'HTTP/1.1 200 OK\r\nContent-Length: 1\r\nContent-Length: 2\r\n\r\nok'],
    [
      'has a length beside chunks',
      'HTTP/1.1 200 OK\r\nContent-Length: 1\r\nTransfer-Encoding: chunked\r\n\r\n',
    ],
    [
      'has a length that no double counts exactly',
      'HTTP/1.1 200 OK\r\nContent-Length: 9007199254740992\r\n\r\n',
    ],
    [
      'has a look-alike of a transfer coding',
      'HTTP/1.1 200 OK\r\nContent-Length: 2\r\nTransfer_Encoding: chunked\r\n\r\nok',
    ],
    ['has a bare CR', 'HTTP/1.1 200 OK\rContent-Length: 1\r\r!'],
    ['folds a field', 'HTTP/1.1 200 OK\nX: a\n b\nContent-Length: 1\n\n!'],
    ['has an endless head', `HTTP/1.1 200 OK\r\nX: ${'x'.repeat(70_000)}`],
    ['has no end of interim responses', 'HTTP/1.1 102 \r\n\r\n'.repeat(40)],
    ['switches protocols unasked', 'HTTP/1.1 101 Switching Protocols\r\nUpgrade: x\r\n\r\n'],
  ])('is 502 ERR_NGROK_3004 when its answer %s', async (_what, answer) => {
    const service = await startScriptedService(answer)
    const { client } = await connectTo({ service: service.port })
    client.send(GET)
    expect(await client.receive('ERR_NGROK_3004)\n')).toMatch(/^HTTP\/1\.1 502 /m)
  })

  it.each([
    ['ends its lines with LF', 'HTTP/1.1 200 OK\nX-Y: z \nContent-Length: 5\n\nhello'],
    [
      'says its length twice',
      'HTTP/1.1 200 OK\r\nX-Y: z\r\nContent-Length: 5\r\ncontent-length: 5\r\n\r\nhello',
    ],
  ])(
    'is none when a small device %s, and the visitor sees nothing of it',
    async (_what, answer) => {
      const service = await startScriptedService(answer, answer)
      const { client } = await connectTo({ service: service.port })
      for (let time = 1; time <= 2; time += 1) {
        client.send(GET)
        await eventually(() => expect(client.text.split('hello')).toHaveLength(time + 1))
      }
      expect(client.text).toMatch(
        /^(?:HTTP\/1\.1 200 OK\r\nX-Y: z\r\nContent-Length: 5\r\n(?:[\w-]+: [^\r\n]+\r\n)*\r\nhello){2}$/,
      )
      expect(service.connections()).toBe(1)
    },
  )

  it('is 502 ERR_NGROK_3004 when it hangs up before its answer is whole', async () => {
    const port = await startRawService((socket) => {
      socket.once('data', () => socket.end('HTTP/1.1 200 OK\r\nContent-Le'))
    })
    const { client } = await connectTo({ service: port })
    client.send(GET)
    expect(await client.receive('ERR_NGROK_3004)\n')).toMatch(/^HTTP\/1\.1 502 /)
  })

  it.each([
    ['a chunk of 4 GiB', '100000000\r\n'],
    ['a length among its trailers', '0\r\nContent-Length: 5\r\n\r\n'],
    ['a cookie among its trailers', '0\r\nSet-Cookie: a=b\r\n\r\n'],
  ])('breaks the connection off where its body has %s', async (_what, body) => {
    const begin = 'HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n2\r\nok\r\n'
    const port = await startRawService((socket) => {
      socket.once('data', () => socket.write(begin))
      socket.on('data', (chunk: Buffer) => String(chunk).includes('go on') && socket.write(body))
    })
    const { client } = await connectTo({ service: port })
    client.send('POST / HTTP/1.1\r\nHost: a.test\r\nContent-Length: 5\r\n\r\n')
    await client.receive('ok')
    client.send('go on')
    expect(await client.end()).not.toBe('end')
    expect(client.text).not.toContain('Cookie')
  })

  it('is 502 ERR_NGROK_3210 when its session ends', async () => {
    const port = await startRawService(() => {})
    const { site, client } = await connectTo({ service: port })
    client.send(GET)
    await eventually(() => expect(site.sdk.connections).toBe(1))
    await site.session.goAway(ErrorCode.none, 'bye')
    expect(await client.receive('ERR_NGROK_3210)\n')).toMatch(/^HTTP\/1\.1 502 /)
    client.send(GET)
    await eventually(() => expect(client.text.match(/ERR_NGROK_3210\)/g)).toHaveLength(2))
  })

  it('cannot set the code that only the gateway sets', async () => {
    const service = await startScriptedService(
      OK.replace('Content', 'Ngrok-Error-Code: X\r\nContent'),
    )
    const { client } = await connectTo({ service: service.port })
    client.send(GET)
    expect(await client.receive('ok')).toBe(OK)
  })
})

describe('a plain front that others can reach', () => {
  it('sends visitors of https endpoints on, method and query kept', async () => {
    const service = await startScriptedService(OK)
    const site = await startIngressSite({ service: service.port, httpHost: '0.0.0.0' })
    site.bind('*.wild.test')
    const client = RawClient.connect(site.addresses.http.port)
    client.send('POST /a?b=c HTTP/1.1\r\nHost: A.test:80\r\nContent-Length: 0\r\n\r\n')
    const answer = await client.receive('\r\n\r\n')
    expect(answer).toMatch(/^HTTP\/1\.1 308 Permanent Redirect\r\n/)
    const { port } = site.addresses.https
    expect(fieldsOf(answer).location).toBe(`https://a.test:${port}/a?b=c`)
    client.send('GET / HTTP/1.1\r\nHost: x.wild.test\r\n\r\n')
    await client.receive(`location: https://x.wild.test:${port}/\r\n`)
    expect(service.requests).toEqual([])
  })

  it('serves http endpoints, which the secure front does not', async () => {
    const service = await startScriptedService(OK)
    const site = await startIngressSite({ service: service.port, httpHost: '0.0.0.0' })
    site.bind('plain.test', 'http')
    const client = RawClient.connect(site.addresses.http.port)
    client.send(GET.replace('a.test', 'plain.test'))
    await client.receive('ok')
    const secure = RawClient.connectTls(site.addresses.https.port, site.caPem)
    secure.send(GET.replace('a.test', 'plain.test'))
    await secure.receive('ERR_NGROK_3200')
  })
})

it('refuses names of internal endpoints to the public', async () => {
  const service = await startScriptedService(OK)
  const { site, client } = await connectTo({ service: service.port })
  site.bind('a.internal')
  client.send(GET.replace('a.test', 'a.internal'))
  await client.receive('ERR_NGROK_3200')
})
