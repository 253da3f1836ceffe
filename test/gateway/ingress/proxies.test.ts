import { once } from 'node:events'
import { readFileSync } from 'node:fs'
import { createServer, request as httpRequest } from 'node:http'
import { connect as connectHttp2 } from 'node:http2'
import { type AddressInfo, connect, type Socket } from 'node:net'
import { connect as tlsConnect } from 'node:tls'
import { describe, expect, it, onTestFinished } from 'vitest'
import { parseCidr } from '../../../src/base/net/network.ts'
import { encodeProxyProtocol } from '../../../src/base/net/proxy-protocol.ts'
import type { ProxyConfig } from '../../../src/base/net/trusted-proxies.ts'
import { eventually } from '../../helpers/eventually.ts'
import { managed } from '../../helpers/managed-gateway.ts'
import { RawClient } from '../../helpers/raw-http.ts'
import {
  connectSdk,
  inTime,
  type RunningOptions,
  startGateway,
} from '../../helpers/running-gateway.ts'
import { somePorts } from '../../helpers/some-ports.ts'
import { addressOf, bindTcp, startTcpService } from '../../helpers/tcp-site.ts'

const HOST = 'a.site.test'
const ENDS = { clientIp: '203.0.113.9', clientPort: 51_234, serverIp: '192.0.2.1', serverPort: 443 }
/** Says which address policies see, and refuses one of them. */
const POLICY = JSON.stringify({
  on_http_request: [
    {
      expressions: ["conn.client_ip == '203.0.113.66'"],
      actions: [{ type: 'deny', config: { status_code: 451 } }],
    },
    {
      actions: [
        {
          type: 'add-headers',
          config: { headers: { 'x-policy-saw': `$${'{conn.client_ip}'}` } },
        },
      ],
    },
  ],
})

const trusting = (options: Partial<ProxyConfig> = {}, networks = ['127.0.0.0/8']): ProxyConfig => ({
  networks: networks.flatMap((text) => parseCidr(text) ?? []),
  header: 'x-forwarded-for',
  sendProxyProtocol: false,
  ...options,
})

/** A gateway with a tunnel of the real SDK to a service that answers with the fields it got. */
async function startSite(options: RunningOptions = {}, scheme: 'http' | 'https' = 'http') {
  const service = createServer((request, response) => response.end(JSON.stringify(request.headers)))
  service.listen(0, '127.0.0.1')
  await once(service, 'listening')
  onTestFinished(() => {
    service.closeAllConnections()
    service.close()
  })
  const running = await startGateway(options)
  const sdk = await connectSdk(running)
  const builder = sdk
    .httpEndpoint()
    .domain(HOST)
    .trafficPolicy(POLICY)
    .scheme(scheme.toUpperCase() as 'HTTP')
  const listener = await inTime(builder.listen())
  listener.forward(`http://127.0.0.1:${(service.address() as AddressInfo).port}`).catch(() => {})
  return { ...running, sdk }
}

interface Answer {
  readonly status: number
  readonly location: string | undefined
  readonly seen: Record<string, string>
}

/** What the device sees of a request with these fields. */
function ask(port: number, headers: Record<string, string>): Promise<Answer> {
  return new Promise((resolve, reject) => {
    httpRequest({ port, headers: { host: HOST, ...headers } }, (response) => {
      let text = ''
      response.setEncoding('utf8').on('data', (chunk: string) => {
        text += chunk
      })
      response.on('end', () => {
        const isSeen = response.statusCode === 200
        const { statusCode: status = 0, headers: fields } = response
        resolve({ status, location: fields.location, seen: isSeen ? JSON.parse(text) : {} })
      })
    })
      .on('error', reject)
      .end()
  })
}

describe('a proxy in front', () => {
  it('names the client for policies and the device when it is trusted', async () => {
    const { addresses } = await startSite({ proxies: trusting() })
    const { port } = addresses.http
    const { seen } = await ask(port, {
      'x-forwarded-for': '198.51.100.1, 203.0.113.9, 127.0.0.7',
      'x-real-ip': '6.6.6.6',
      'x-forwarded-host': 'evil.test',
      forwarded: 'for=6.6.6.6',
    })
    expect(seen).toMatchObject({
      'x-policy-saw': '203.0.113.9',
      'x-forwarded-for': '198.51.100.1, 203.0.113.9',
      'x-real-ip': '203.0.113.9',
      'x-forwarded-host': HOST,
      forwarded: `for=203.0.113.9;host=${HOST};proto=http`,
    })
    expect((await ask(port, { 'x-forwarded-for': '203.0.113.66' })).status).toBe(451)
  })

  it('names a client for each request of a connection', async () => {
    const { addresses } = await startSite({ proxies: trusting() })
    const client = RawClient.connect(addresses.http.port)
    for (const ip of ['203.0.113.1', '203.0.113.2', '203.0.113.66', '203.0.113.3']) {
      client.send(`GET /${ip} HTTP/1.1\r\nHost: ${HOST}\r\nX-Forwarded-For: ${ip}\r\n\r\n`)
      await client.receive(ip.endsWith('66') ? 'HTTP/1.1 451' : `"x-policy-saw":"${ip}"`)
    }
  })

  it('is not believed when it is not trusted', async () => {
    const { addresses } = await startSite({ proxies: trusting({}, ['10.0.0.0/8']) })
    const fields = { 'x-forwarded-for': '203.0.113.66', 'x-forwarded-proto': 'https' }
    const { status, seen } = await ask(addresses.http.port, fields)
    expect(status).toBe(200)
    expect(seen).toMatchObject({
      'x-policy-saw': '127.0.0.1',
      'x-forwarded-for': '203.0.113.66, 127.0.0.1',
      'x-forwarded-proto': 'http',
    })
  })

  it('counts as the client when it names none, and the log says so', async () => {
    const { addresses, logText } = await startSite({ proxies: trusting() })
    const { seen } = await ask(addresses.http.port, { 'x-forwarded-for': '203.0.113.9, unknown' })
    expect(seen).toMatchObject({ 'x-policy-saw': '127.0.0.1', 'x-forwarded-for': '127.0.0.1' })
    expect(logText()).toMatch(/check the header of GATEWAY_FORWARDED_HEADER at the proxy/)
  })

  it('is read by the configured header alone', async () => {
    const { addresses } = await startSite({ proxies: trusting({ header: 'forwarded' }) })
    const { seen } = await ask(addresses.http.port, {
      forwarded: 'for=198.51.100.1, for="203.0.113.9:4711"',
      'x-forwarded-for': '203.0.113.66',
    })
    expect(seen).toMatchObject({
      'x-policy-saw': '203.0.113.9',
      'x-forwarded-for': '198.51.100.1, 203.0.113.9',
    })
  })

  it('names a client for each stream of an HTTP/2 connection', async () => {
    const { addresses } = await startSite({ proxies: trusting() }, 'https')
    const { port } = addresses.https
    const session = connectHttp2(`https://localhost:${port}`, {
      createConnection: () =>
        tlsConnect({
          port,
          host: '127.0.0.1',
          servername: HOST,
          ca: readFileSync(addresses.caCertPath),
          ALPNProtocols: ['h2'],
        }),
    })
    onTestFinished(() => session.destroy())
    const ips = ['203.0.113.1', '203.0.113.2', '203.0.113.3']
    const seen = await Promise.all(
      ips.map(async (ip) => {
        const stream = session.request({ ':authority': HOST, 'x-forwarded-for': ip })
        const chunks: Buffer[] = []
        for await (const chunk of stream) chunks.push(chunk as Buffer)
        return (JSON.parse(Buffer.concat(chunks).toString()) as Record<string, string>)[
          'x-policy-saw'
        ]
      }),
    )
    expect(seen).toEqual(ips)
  })

  it('names the client to the management API, whose cookies follow its scheme', async () => {
    const running = await startSite({
      proxies: trusting(),
      apiListen: { host: '127.0.0.1', port: 0 },
    })
    const { apiKey } = await managed(running)
    const signIn = async (headers: Record<string, string>) => {
      const response = await fetch(
        `http://127.0.0.1:${running.addresses.api?.port}/console/session`,
        {
          method: 'POST',
          headers: {
            'content-type': 'application/json',
            origin: `http://127.0.0.1:${running.addresses.api?.port}`,
            ...headers,
          },
          body: JSON.stringify({ api_key: apiKey.reveal() }),
        },
      )
      return [response.status, /; Secure(;|$)/.test(response.headers.get('set-cookie') ?? '')]
    }
    const by = { 'x-forwarded-for': '6.6.6.6, 203.0.113.9' }
    expect(await signIn({ ...by, 'x-forwarded-proto': 'https' })).toEqual([201, true])
    expect(await signIn({ ...by, 'x-forwarded-proto': 'http' })).toEqual([201, false])
    expect(running.logText()).toContain('"client":"203.0.113.9"')
    expect(running.logText()).not.toContain('"client":"127.0.0.1"')
  })

  it('tells the scheme: an https endpoint is served where TLS has ended at the proxy', async () => {
    const { addresses } = await startSite({ proxies: trusting() }, 'https')
    const { port } = addresses.http
    const from = { 'x-forwarded-for': '203.0.113.9' }
    const served = await ask(port, { ...from, 'x-forwarded-proto': 'https' })
    expect([served.status, served.seen['x-forwarded-proto']]).toEqual([200, 'https'])
    const led = await ask(port, { ...from, 'x-forwarded-proto': 'http' })
    expect([led.status, led.location]).toEqual([308, expect.stringMatching(`^https://${HOST}`)])
  })
})

describe('the PROXY protocol', () => {
  const proxies = trusting({ sendProxyProtocol: true })
  const GET = `GET / HTTP/1.1\r\nHost: ${HOST}\r\nConnection: close\r\n\r\n`

  it.each([1, 2] as const)(
    'names the visitor in version %i, however it is cut',
    async (version) => {
      const { addresses } = await startSite({ proxies })
      const bytes = Buffer.concat([encodeProxyProtocol(version, ENDS), Buffer.from(GET)])
      for (const cut of [bytes.length, 1, 13, encodeProxyProtocol(version, ENDS).length]) {
        const client = RawClient.connect(addresses.http.port)
        client.socket.setNoDelay(true)
        client.socket.write(bytes.subarray(0, cut))
        await new Promise(setImmediate)
        client.socket.write(bytes.subarray(cut))
        const text = await client.receive('"x-policy-saw":"203.0.113.9"')
        expect(text).toContain('"x-forwarded-for":"203.0.113.9"')
      }
    },
  )

  it('names the visitor before TLS', async () => {
    const { addresses } = await startSite({ proxies }, 'https')
    const socket = connect(addresses.https.port, '127.0.0.1')
    socket.write(encodeProxyProtocol(2, ENDS))
    const secured = new RawClient(
      tlsConnect({ socket, servername: HOST, ca: readFileSync(addresses.caCertPath) }),
    )
    secured.send(GET)
    await secured.receive('"x-policy-saw":"203.0.113.9"')
  })

  it('names the visitor of a TCP endpoint', async () => {
    const running = await startSite({ proxies, tcpListen: somePorts() })
    const service = await startTcpService((socket: Socket) => socket.pipe(socket))
    const policy = {
      on_tcp_connect: [
        {
          expressions: ["conn.client_ip == '203.0.113.66'"],
          actions: [{ type: 'deny', config: {} }],
        },
      ],
    }
    const port = Number(
      addressOf(await bindTcp(running.sdk, { policy, to: service.port })).split(':')[1],
    )
    const served = RawClient.connect(port)
    served.socket.write(Buffer.concat([encodeProxyProtocol(1, ENDS), Buffer.from('hello')]))
    expect(await served.receive('hello')).toBe('hello')
    const denied = RawClient.connect(port)
    denied.socket.write(encodeProxyProtocol(1, { ...ENDS, clientIp: '203.0.113.66' }))
    await denied.end()
    expect(denied.length).toBe(0)
  })

  it('keeps the address of the load balancer where its header names nobody', async () => {
    const { addresses } = await startSite({ proxies })
    const client = RawClient.connect(addresses.http.port)
    client.send(`PROXY UNKNOWN\r\n${GET}`)
    await client.receive('"x-policy-saw":"127.0.0.1"')
  })

  it.each([
    ['a request without a header', GET],
    ['half a header and then something else', `PROXY TCP4 203.0.113.9\r\n${GET}`],
    ['a header without an end', `PROXY TCP4 ${'1'.repeat(200)}`],
  ])('closes a connection with %s, and the log says so', async (_what, text) => {
    const { addresses, logText } = await startSite({ proxies })
    const client = RawClient.connect(addresses.http.port)
    client.send(text)
    await client.end()
    expect(client.text).toBe('')
    await eventually(() => expect(logText()).toMatch(/without a valid PROXY header was closed/))
  })

  it('closes connections of others than the load balancer', async () => {
    const { addresses, logText } = await startSite({
      proxies: trusting({ sendProxyProtocol: true }, ['10.0.0.0/8']),
    })
    const client = RawClient.connect(addresses.http.port)
    client.socket.write(Buffer.concat([encodeProxyProtocol(1, ENDS), Buffer.from(GET)]))
    await client.end()
    expect(client.text).toBe('')
    expect(logText()).toMatch(/is not in GATEWAY_TRUSTED_PROXIES/)
  })
})
