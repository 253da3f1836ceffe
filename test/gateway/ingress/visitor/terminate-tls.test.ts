import { once } from 'node:events'
import { readFileSync } from 'node:fs'
import { createServer } from 'node:http'
import { connect as connectHttp2 } from 'node:http2'
import type { AddressInfo, Socket } from 'node:net'
import { type ConnectionOptions, checkServerIdentity, type TLSSocket } from 'node:tls'
import type { Session } from '@ngrok/ngrok'
import { describe, expect, it, onTestFinished } from 'vitest'
import type { AgentEndpoint } from '../../../../src/gateway/endpoints/endpoint.ts'
import type { Outcome, TlsTerms } from '../../../../src/policy/exchange/outcome.ts'
import type { CompiledPolicy } from '../../../../src/policy/policy.ts'
import { capturedHello } from '../../../helpers/client-hello.ts'
import { eventually } from '../../../helpers/eventually.ts'
import { startIngressSite } from '../../../helpers/ingress-site.ts'
import { publicRequest } from '../../../helpers/public-request.ts'
import { RawAgent } from '../../../helpers/raw-agent.ts'
import { startScriptedService } from '../../../helpers/raw-http.ts'
import {
  connectSdk,
  inTime,
  type RunningGateway,
  sdkCode,
  startGateway,
} from '../../../helpers/running-gateway.ts'
import { somePorts } from '../../../helpers/some-ports.ts'
import { bindTcp, readAll, startTcpService } from '../../../helpers/tcp-site.ts'
import { AN_HOUR_AGO, createAuthority, createIntermediate } from '../../../helpers/tls-fixture.ts'
import { bindTls, startTlsService, visitRaw, visitTls } from '../../../helpers/tls-site.ts'

const HOST = 'cam.site.test'
const authority = await createAuthority()
const stranger = await createAuthority()
const pair = async (issued: ReturnType<typeof authority.issue>): Promise<ConnectionOptions> => {
  const { certPem, keyPem } = await issued
  return { cert: certPem, key: keyPem }
}
const GOOD = await pair(authority.issue({ name: 'press.test', purpose: 'client' }))
const CLIENTS = {
  good: GOOD,
  missing: {},
  untrusted: await pair(stranger.issue({ name: 'press.test' })),
  expired: await pair(authority.issue({ name: 'press.test', validity: AN_HOUR_AGO })),
  'for servers': await pair(authority.issue({ name: 'press.test', purpose: 'server' })),
}
type ClientName = keyof typeof CLIENTS

const echo = (socket: Socket) => socket.pipe(socket)
const mtls = { mutual_tls_certificate_authorities: [authority.caPem] }
const rule = (config: object, ...expressions: string[]) => ({
  expressions,
  actions: [{ type: 'terminate-tls', config }],
})
const denyIf = (expression: string) => ({
  expressions: [expression],
  actions: [{ type: 'deny' }],
})
const terms = (config: object) => ({ on_tcp_connect: [rule(config)] })
const caOf = ({ addresses }: RunningGateway) => readFileSync(addresses.caCertPath)
const endpointOf = ({ gateway }: RunningGateway) =>
  gateway.parts.registry.match(HOST, 'tls') as AgentEndpoint

/** Nothing is heard in a connection that is cut off, whatever its end looks like. */
const heardOf = async (visitor: TLSSocket) =>
  (await readAll(visitor)).replace(/broken$/, '') || 'nothing'

/** What a visitor hears of an echo behind the name. */
async function echoOf(running: RunningGateway, options: ConnectionOptions = {}): Promise<string> {
  const visitor = visitTls(running, HOST, { ca: caOf(running), ...options })
  visitor.end('hello')
  return heardOf(visitor)
}

async function startEcho(policy: object, options: Parameters<typeof bindTls>[1] = {}) {
  const running = await startGateway()
  const session = await connectSdk(running)
  const service = await startTcpService(echo)
  await bindTls(session, { domain: HOST, to: service.port, policy, ...options })
  return { running, session, service }
}

describe('terminate-tls of a TLS endpoint', () => {
  it('ends TLS with the certificate of the domain; the device gets what stood in it', async () => {
    const { running, service } = await startEcho(terms({}))
    const visitor = visitTls(running, HOST, { ca: caOf(running), checkServerIdentity })
    visitor.end('hello')
    expect(await readAll(visitor)).toBe('hello')
    expect([visitor.authorized, visitor.alpnProtocol]).toEqual([true, false])
    expect(service.sockets).toHaveLength(1)
    await eventually(() => {
      const { traffic } = endpointOf(running)
      expect([traffic.requests, traffic.active, traffic.bytesIn, traffic.bytesOut]).toEqual([
        1, 0, 5, 5,
      ])
    })
  })

  it('keeps a connection half-open, whichever side ends first', async () => {
    const running = await startGateway()
    const session = await connectSdk(running)
    const talker = await startTcpService((socket) => socket.end('all I have to say'))
    await bindTls(session, { domain: HOST, to: talker.port, policy: terms({}) })
    const first = visitTls(running, HOST, { ca: caOf(running) })
    expect(await readAll(first)).toBe('all I have to say')
    first.end('and all I have')
    await eventually(async () => expect(talker.sockets).toHaveLength(1))
    expect(await readAll(talker.sockets[0] as Socket)).toBe('and all I have')
  })

  it('takes the certificate that the SDK brings, and repeats its key to that SDK alone', async () => {
    const { certPem: cert, keyPem: key } = await stranger.issue({ name: HOST })
    const { running } = await startEcho({}, { termination: { cert, key } })
    expect(await echoOf(running, { ca: stranger.caPem, checkServerIdentity })).toBe('hello')
    const base64 = { cert: Buffer.from(cert), key: Buffer.from(key) }
    const TLSTermination = {
      cert: base64.cert.toString('base64'),
      key: base64.key.toString('base64'),
    }
    const agent = await RawAgent.connect(running)
    const AuthToken = running.authtoken.reveal()
    await agent.rpc(0, { Version: ['3', '2'], ClientId: '', Extra: { AuthToken } })
    const Opts = { Domain: 'raw.site.test', TLSTermination }
    const answer = await agent.rpc(1, { Id: '', Proto: 'tls', ForwardsTo: ':1', Opts, Extra: {} })
    // The SDK binds again with these: what is missing would not be in force any more.
    expect(answer).toMatchObject({ Proto: 'tls', Opts })
    expect(answer.Opts).toEqual(Opts)
    const wrong = {
      Domain: 'other.site.test',
      TLSTermination: { ...TLSTermination, cert: TLSTermination.key },
    }
    const refused = await agent.rpc(1, { Id: '', Proto: 'tls', ForwardsTo: ':1', Opts: wrong })
    expect(refused.Error).toMatch(/ERR_NGROK_9026/)
    for (const said of [String(refused.Error), running.logText()]) {
      expect(said).not.toContain(TLSTermination.key.slice(100, 150))
      expect(said).not.toContain(key.slice(50, 100))
    }
  })

  it('agrees on no version that it does not want', async () => {
    const { running, session, service } = await startEcho(terms({ min_version: '1.3' }))
    expect(await echoOf(running, { maxVersion: 'TLSv1.2' })).toBe('nothing')
    expect(await echoOf(running)).toBe('hello')
    const other = 'old.site.test'
    await bindTls(session, {
      domain: other,
      to: service.port,
      policy: terms({ max_version: '1.2' }),
    })
    const visitor = visitTls(running, other, { ca: caOf(running) })
    await once(visitor, 'secureConnect')
    expect(visitor.getProtocol()).toBe('TLSv1.2')
    await eventually(() => expect(endpointOf(running).traffic.refused).toBe(1))
  })

  it('passes TLS on where its rule does not match', async () => {
    const service = await startTlsService(echo)
    const policy = { on_tcp_connect: [rule({}, "conn.client_ip != '127.0.0.1'")] }
    const { running } = await startEcho(policy, { to: service.port })
    expect(await echoOf(running, { ca: service.caPem })).toBe('hello')
  })

  it('tells the rules behind it what was agreed on', async () => {
    const said = `conn.tls.sni == '${HOST}' && conn.tls.version == '1.3' && actions.ngrok.terminate_tls.version == '1.3'`
    const { running } = await startEcho({ on_tcp_connect: [rule({}), denyIf(`!(${said})`)] })
    expect(await echoOf(running)).toBe('hello')
    const denied = await startEcho({ on_tcp_connect: [rule({}), denyIf(said)] })
    expect(await echoOf(denied.running)).toBe('nothing')
    expect(denied.service.sockets).toHaveLength(0)
  })

  it('cannot end what has ended in another way', async () => {
    const { running } = await startEcho({
      on_tcp_connect: [rule({}), rule({ min_version: '1.3' })],
    })
    expect(await echoOf(running)).toBe('nothing')
    const twice = await startEcho({ on_tcp_connect: [rule(mtls), rule(mtls)] })
    expect(await echoOf(twice.running, GOOD)).toBe('hello')
  })

  it('has no place for who leaves in the middle of the handshake', async () => {
    const { running, service } = await startEcho(terms({}))
    const visitor = visitRaw(running)
    visitor.write(await capturedHello(HOST))
    // The gateway has answered, and waits for what follows.
    await once(visitor, 'data')
    visitor.resetAndDestroy()
    await eventually(() => expect(endpointOf(running).traffic.active).toBe(0))
    expect(service.sockets).toHaveLength(0)
  })

  it('waits for a device that is away, and ends TLS then', async () => {
    const running = await startGateway()
    const service = await startTcpService(echo)
    const metadata = '{"device_id":"press"}'
    const wish = { domain: HOST, to: service.port, policy: terms(mtls) }
    await bindTls(await connectSdk(running, { metadata }), wish)
    const { sessions, registry } = running.gateway.parts
    for (const session of [...sessions.all()]) session.end('the link broke')
    const answers = [echoOf(running, GOOD), echoOf(running)]
    await eventually(() => expect(registry.held.size).toBe(2))
    await bindTls(await connectSdk(running, { metadata }), wish)
    expect(await Promise.all(answers)).toEqual(['hello', 'nothing'])
  })
})

describe('certificates of the visitors of a TLS endpoint', () => {
  const strategies = {
    'require-and-verify': ['good'],
    'require-any': ['good', 'untrusted', 'expired', 'for servers'],
    request: ['good', 'missing', 'untrusted', 'expired', 'for servers'],
  }
  it.each(Object.entries(strategies))('are looked at as %s says', async (strategy, welcome) => {
    const config = { ...mtls, mutual_tls_verification_strategy: strategy }
    const { running, service } = await startEcho(terms(config))
    for (const maxVersion of ['TLSv1.2', 'TLSv1.3'] as const) {
      for (const [name, certificate] of Object.entries(CLIENTS)) {
        const answer = await echoOf(running, { ...certificate, maxVersion })
        expect([name, maxVersion, answer]).toEqual([
          name,
          maxVersion,
          welcome.includes(name as ClientName) ? 'hello' : 'nothing',
        ])
      }
    }
    expect(service.sockets).toHaveLength(2 * welcome.length)
    expect(endpointOf(running).traffic.refused).toBe(2 * (5 - welcome.length))
  })

  it('may be of an authority that another one has signed, which nobody has to name', async () => {
    const intermediate = await createIntermediate()
    const config = { mutual_tls_certificate_authorities: [intermediate.caPem] }
    const { running } = await startEcho(terms(config))
    const wish = { name: 'press.test', purpose: 'client' } as const
    expect(await echoOf(running, await pair(intermediate.issue(wish)))).toBe('hello')
    expect(await echoOf(running, GOOD)).toBe('nothing')
  })

  it('are asked for by the option of the SDK, and known to the policy', async () => {
    const policy = {
      on_tcp_connect: [denyIf("conn.tls.client.subject.common_name != 'press.test'")],
    }
    const { running } = await startEcho(policy, { mutualTlsca: authority.caPem })
    expect(await echoOf(running, GOOD)).toBe('hello')
    expect(await echoOf(running)).toBe('nothing')
    const other = await pair(authority.issue({ name: 'other.test' }))
    expect(await echoOf(running, other)).toBe('nothing')
  })

  it('are shown each time, also by who has a session of an earlier one', async () => {
    const { running } = await startEcho(terms(mtls))
    for (const maxVersion of ['TLSv1.2', 'TLSv1.3'] as const) {
      const sessions: Buffer[] = []
      const first = visitTls(running, HOST, { ca: caOf(running), ...GOOD, maxVersion })
      first.on('session', (session) => sessions.push(session))
      first.end('hello')
      expect(await readAll(first)).toBe('hello')
      const session = sessions.at(-1)
      if (!session) continue
      const again = visitTls(running, HOST, { ca: caOf(running), session, maxVersion })
      again.end('hello')
      expect(await heardOf(again)).toBe('nothing')
    }
  })
})

describe('terminate-tls of an HTTPS endpoint', () => {
  /** A service that answers with a header of its request, and how many connections it had. */
  async function startSite(policy: object, mutualTlsca?: string, host = HOST) {
    const running = await startGateway()
    const session = await connectSdk(running, { metadata: '{"device_id":"press"}' })
    const server = createServer((request, response) => {
      response.end(`${request.headers['x-client'] ?? 'nobody'}\n`)
    }).listen(0, '127.0.0.1')
    await once(server, 'listening')
    onTestFinished(() => {
      server.closeAllConnections()
      server.close()
    })
    const { port } = server.address() as AddressInfo
    const bindAgain = (next: object, domain = HOST) =>
      bindHttps(session, domain, port, next, mutualTlsca)
    await bindAgain(policy, host)
    return { running, session, bindAgain }
  }

  async function bindHttps(
    session: Session,
    domain: string,
    to: number,
    policy: object,
    ca?: string,
  ) {
    const builder = session.httpEndpoint().domain(domain).trafficPolicy(JSON.stringify(policy))
    if (ca !== undefined) builder.mutualTlsca(Buffer.from(ca))
    return inTime(builder.listenAndForward(`http://127.0.0.1:${to}`))
  }

  const NAMED = {
    on_http_request: [
      {
        actions: [
          {
            type: 'add-headers',
            config: { headers: { 'x-client': '$' + '{conn.tls.client.subject.common_name}' } },
          },
        ],
      },
    ],
  }
  const both = (config: object) => ({ ...terms(config), ...NAMED })

  const ask = (visitor: TLSSocket, host = HOST, more = 'connection: close\r\n') =>
    visitor.write(`GET / HTTP/1.1\r\nhost: ${host}\r\n${more}\r\n`)

  async function get(running: RunningGateway, options: ConnectionOptions, host = HOST, sni = HOST) {
    const visitor = visitTls(running, sni, { ca: caOf(running), ...options })
    ask(visitor, host)
    return heardOf(visitor)
  }

  async function getHttp2(running: RunningGateway, options: ConnectionOptions, sni = HOST) {
    const visitor = visitTls(running, sni, {
      ca: caOf(running),
      ...options,
      ALPNProtocols: ['h2'],
      allowHalfOpen: false,
    } as ConnectionOptions)
    const session = connectHttp2(`https://${sni}`, { createConnection: () => visitor })
    onTestFinished(() => session.destroy())
    return new Promise<string>((resolve) => {
      session.on('error', () => resolve('nothing'))
      session.on('close', () => resolve('nothing'))
      const stream = session.request({ ':authority': HOST, ':path': '/' })
      let text = ''
      stream.on('error', () => resolve('nothing'))
      stream.on('response', (headers) => {
        text = `${headers[':status']} `
      })
      stream.on('data', (chunk) => {
        text += chunk
      })
      stream.on('end', () => resolve(text || 'nothing'))
    })
  }

  it.each([
    ['the policy', both(mtls), undefined],
    ['the option of the SDK', NAMED, authority.caPem],
  ])('has certificates of clients asked for by %s', async (_what, policy, ca) => {
    const { running } = await startSite(policy, ca)
    for (const maxVersion of ['TLSv1.2', 'TLSv1.3'] as const) {
      expect(await get(running, { ...GOOD, maxVersion })).toMatch(/^HTTP\/1\.1 200 .*press\.test/s)
      expect(await getHttp2(running, { ...GOOD, maxVersion })).toBe('200 press.test\n')
      for (const name of ['missing', 'untrusted', 'expired', 'for servers'] as const) {
        expect([name, await get(running, { ...CLIENTS[name], maxVersion })]).toEqual([
          name,
          'nothing',
        ])
        expect([name, await getHttp2(running, { ...CLIENTS[name], maxVersion })]).toEqual([
          name,
          'nothing',
        ])
      }
    }
  })

  it('is no way in for who names another host, or speaks no TLS', async () => {
    const { running, bindAgain } = await startSite(both(mtls))
    await bindAgain({}, 'open.site.test')
    const other = 'open.site.test'
    expect(await get(running, GOOD, other, other)).toMatch(/^HTTP\/1\.1 200 /)
    expect(await get(running, GOOD, HOST, other)).toMatch(/^HTTP\/1\.1 421 .*MISDIRECTED/s)
    expect(await getHttp2(running, GOOD, other)).toMatch(/^421 .*MISDIRECTED/s)
    expect(await get(running, GOOD, HOST, '')).toMatch(/^HTTP\/1\.1 421 /)
    // Whoever has shown a certificate may ask for others as before.
    expect(await get(running, GOOD, other)).toMatch(/^HTTP\/1\.1 200 /)
    const plain = await publicRequest({
      ingress: `http://127.0.0.1:${running.addresses.http.port}`,
      host: HOST,
    })
    expect(plain.status).toBe(421)
  })

  it('judges a connection once, and each request of it by its own rules', async () => {
    const config = {
      name: 'one',
      algorithm: 'sliding_window',
      capacity: 1,
      rate: '1h',
      bucket_key: ['conn.client_ip'],
    }
    const limit = { actions: [{ type: 'rate-limit', config }] }
    const { running } = await startSite({ on_tcp_connect: [rule({}), limit] })
    const visitor = visitTls(running, HOST, { ca: caOf(running) })
    let text = ''
    visitor.on('data', (chunk) => {
      text += chunk
    })
    for (const count of [1, 2]) {
      ask(visitor, HOST, '')
      await eventually(() => expect(text.match(/nobody/g)).toHaveLength(count))
    }
    expect(await get(running, {})).toBe('nothing')
    expect(endpointOf(running).traffic.refused).toBe(1)
  })

  it('keeps connections over a reconnect of the device, unless the terms are others', async () => {
    const { running, bindAgain } = await startSite(both(mtls))
    const visitor = visitTls(running, HOST, { ca: caOf(running), ...GOOD })
    let text = ''
    visitor.on('data', (chunk) => {
      text += chunk
    })
    const answers = async (count: number) => {
      ask(visitor, HOST, '')
      await eventually(() => expect(text.match(/^HTTP/gm)).toHaveLength(count))
    }
    await answers(1)
    await bindAgain(both({ ...mtls, min_version: '1.2' }))
    await answers(2)
    expect(text).not.toMatch(/^HTTP\/1\.1 421/m)
    await bindAgain(both({ ...mtls, min_version: '1.3' }))
    await answers(3)
    expect(text).toMatch(/HTTP\/1\.1 421 .*MISDIRECTED/s)
    // A client that went on here would be told the same for ever.
    expect(text).toMatch(/421 .*\r\nconnection: close\r\n/is)
    await eventually(() => expect(visitor.readableEnded || visitor.destroyed).toBe(true))
  })

  it('ends TLS as ever where its rule does not match', async () => {
    const { running } = await startSite({
      on_tcp_connect: [rule(mtls, "conn.client_ip != '127.0.0.1'")],
    })
    expect(await get(running, {})).toMatch(/^HTTP\/1\.1 200 /)
    expect(await getHttp2(running, {})).toMatch(/^200 /)
  })

  it('is refused where visitors name nobody before they are let in', async () => {
    const running = await startGateway({ tcpListen: somePorts() })
    const session = await connectSdk(running)
    expect(await sdkCode(bindTcp(session, { policy: terms({}) }))).toBe('ERR_NGROK_9026')
    const plain = session.httpEndpoint().scheme('http').domain(HOST)
    const error = plain.trafficPolicy(JSON.stringify(terms({}))).listen()
    await expect(error).rejects.toThrow(/terminate-tls is only for HTTPS and TLS endpoints/)
  })
})

describe('a policy that takes its time behind terminate-tls', () => {
  const TERMS: TlsTerms = {
    id: 'slow',
    minVersion: 'TLSv1.2',
    maxVersion: 'TLSv1.3',
    own: undefined,
    clientCertificates: 'none',
    authorities: [],
  }

  /** An endpoint whose policy ends TLS, and decides some turns after that. */
  async function startSlowSite(outcome: Outcome = { kind: 'continue' }) {
    const service = await startScriptedService('HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok')
    const site = await startIngressSite({ service: service.port })
    const policy: Partial<CompiledPolicy> = {
      hasConnectRules: true,
      has: () => true,
      onTcpConnect: async (exchange) => {
        expect(await exchange.endTls?.(TERMS)).toBe('ended')
        for (let turn = 0; turn < 50; turn += 1) await new Promise((next) => setImmediate(next))
        return outcome
      },
      onHttpRequest: () => ({ kind: 'continue' }),
    }
    site.bind('slow.test', 'https', policy)
    const visit = (ALPNProtocols: string[]) =>
      visitTls(site, 'slow.test', { rejectUnauthorized: false, ALPNProtocols })
    return { site, visit }
  }

  it.each([['http/1.1'], ['h2']])('is waited for by what has come by %s', async (protocol) => {
    const { visit } = await startSlowSite()
    const visitor = visit([protocol])
    if (protocol === 'h2') {
      const session = connectHttp2('https://slow.test', { createConnection: () => visitor })
      onTestFinished(() => session.destroy())
      const stream = session.request({ ':path': '/' })
      const [headers] = (await once(stream, 'response')) as [Record<string, unknown>]
      expect(headers[':status']).toBe(200)
      return
    }
    visitor.write('GET / HTTP/1.1\r\nhost: slow.test\r\nconnection: close\r\n\r\n')
    expect(await readAll(visitor)).toMatch(/^HTTP\/1\.1 200 .*ok$/s)
  })

  it('lets nobody in whom it refuses then', async () => {
    const { visit } = await startSlowSite({ kind: 'close' })
    const visitor = visit(['http/1.1'])
    visitor.write('GET / HTTP/1.1\r\nhost: slow.test\r\nconnection: close\r\n\r\n')
    expect(await heardOf(visitor)).toBe('nothing')
  })
})
