import { constants } from 'node:http2'
import { describe, expect, it } from 'vitest'
import { answerOf, connectHttp2, openStream } from '../../helpers/http2-visitor.ts'
import { type IngressSite, startIngressSite } from '../../helpers/ingress-site.ts'
import { fieldsOf, RawClient, startScriptedService } from '../../helpers/raw-http.ts'

const OK = 'HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok'

/** RFC 9112 3.2: 400 for a Host that is none (RFC 9110 7.2, RFC 3986 3.2). */
const REFUSED = [
  ...['a.test:99999', 'a.test:65536', 'a.test:000443', 'a.test:', 'a.test:abc', 'a.test:-1'],
  ...['a.test:443:443', 'a.test: 443', 'a.test :443', 'a b.test', 'a.test, a.test'],
  ...['user@a.test', 'user:1@a.test', 'http://a.test', 'a.test/', 'a.test?x', 'a.test#x'],
  ...['a.test\\', 'a.test%00', 'a.t\xe4st', '::1', '[::1', '::1]', '[::1]x', '[::1]:65536'],
  ...['[....]', '[::1%25eth0]', '[v1.a]', '[]', '[a.test]', '.', ':443'],
]
const SERVED = ['a.test', 'A.Test', 'a.test.', 'a.test:0', 'a.test:443', 'a.test.:65535']

async function start() {
  const service = await startScriptedService(OK)
  const site = await startIngressSite({ service: service.port })
  return { service, site }
}

const overHttp1 = (isSecure: boolean) => async (site: IngressSite, host: string) => {
  const { http, https } = site.addresses
  const client = isSecure
    ? RawClient.connectTls(https.port, site.caPem)
    : RawClient.connect(http.port)
  client.send(`GET / HTTP/1.1\r\nHost: ${host}\r\nConnection: close\r\n\r\n`)
  await client.end()
  const status = Number(client.text.slice('HTTP/1.1 '.length).slice(0, 3))
  return { status, code: fieldsOf(client.text)['ngrok-error-code'] }
}

const VISITORS = [
  ['HTTP/1.1', overHttp1(false)],
  ['HTTPS', overHttp1(true)],
  [
    'HTTP/2',
    async (site: IngressSite, host: string) => {
      const session = await connectHttp2(site)
      const stream = openStream(session, { ':authority': host })
      const { status, headers, code } = await answerOf(stream)
      // What is malformed in HTTP/2 itself ends its stream (RFC 9113 8.1.1).
      const isReset = status === undefined && code === constants.NGHTTP2_PROTOCOL_ERROR
      return isReset
        ? { status: 400, code: 'ERR_GATEWAY_BAD_REQUEST' }
        : { status, code: headers['ngrok-error-code'] }
    },
  ],
] as const

describe.each(VISITORS)('a host in %s', (_name, ask) => {
  it('that is none gets 400 and reaches no device', async () => {
    const { site, service } = await start()
    for (const host of REFUSED) {
      const { status, code } = await ask(site, host)
      expect([host, status, code]).toEqual([host, 400, 'ERR_GATEWAY_BAD_REQUEST'])
    }
    expect(service.requests).toEqual([])
  })

  it('is served in any spelling and with any port', async () => {
    const { site } = await start()
    for (const host of SERVED) expect([host, (await ask(site, host)).status]).toEqual([host, 200])
  })
})

it('has to be the one of an absolute target', async () => {
  const { site } = await start()
  for (const [target, status] of [
    ['http://a.test/', 200],
    ['HTTP://A.test/x', 200],
    ['http://b.test/', 400],
    ['http://a.test:99999/', 400],
    ['http://user@a.test/', 400],
    ['http://a.test@b.test/', 400],
    ['http:///', 400],
    ['//a.test/', 200],
    ['a.test/', 400],
  ] as const) {
    const client = RawClient.connect(site.addresses.http.port)
    client.send(`GET ${target} HTTP/1.1\r\nHost: a.test\r\nConnection: close\r\n\r\n`)
    await client.end()
    expect([target, client.text.slice(0, 12)]).toEqual([target, `HTTP/1.1 ${status}`])
  }
})

it('has to be the one of :authority', async () => {
  const { site } = await start()
  const session = await connectHttp2(site)
  for (const [host, status] of [
    ['a.test', 200],
    ['b.test', 400],
    ['a.test:443', 400],
  ] as const) {
    const stream = openStream(session, { ':authority': 'a.test', host })
    expect([host, (await answerOf(stream)).status]).toEqual([host, status])
  }
})
