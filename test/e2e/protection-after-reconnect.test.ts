import { once } from 'node:events'
import { readFileSync } from 'node:fs'
import { createServer as createHttpServer } from 'node:http'
import { type AddressInfo, connect, createServer, type Socket } from 'node:net'
import { connect as connectTls } from 'node:tls'
import ngrok, { type Listener } from '@ngrok/ngrok'
import { describe, expect, it, onTestFinished } from 'vitest'
import { withDeadline } from '../../src/base/deadline.ts'
import { createDeferred } from '../../src/base/deferred.ts'
import { formatListenAddress } from '../../src/base/listen-address.ts'
import { eventually } from '../helpers/eventually.ts'
import { GatewayProgram } from '../helpers/gateway-program.ts'
import { publicRequest } from '../helpers/public-request.ts'
import { startRelay } from '../helpers/relay.ts'
import { inTime } from '../helpers/running-gateway.ts'
import { lastingAddress, somePorts } from '../helpers/some-ports.ts'
import { temporaryFolder } from '../helpers/temporary-folder.ts'
import { createAuthority, createTlsFixture, type TlsFixture } from '../helpers/tls-fixture.ts'
import { startTlsService } from '../helpers/tls-site.ts'

const DOMAIN = 'site.localhost'
const OTHERS = '10.0.0.0/8'
const US = '127.0.0.0/8'
const PASSWORD = 'a very long password'
const SECRET = 'shared-webhook-secret'
const DENY = { actions: [{ type: 'deny', config: {} }] }
const DENIED_CONNECTION = JSON.stringify({ on_tcp_connect: [DENY] })
const DENIED_REQUEST = JSON.stringify({
  on_http_request: [{ actions: [{ type: 'deny', config: { status_code: 451 } }] }],
})
/** What builders have beside options. */
const NO_OPTIONS = [
  'constructor',
  '_listen',
  'listen',
  'listenAndForward',
  'listenAndServe',
  'forwardsTo',
]

interface Case {
  /** The options that the case is about. */
  readonly options: readonly string[]
  readonly kind: 'http' | 'tcp' | 'tls'
  // biome-ignore lint/suspicious/noExplicitAny: the builders have no type in common.
  readonly ask: (builder: any) => unknown
  readonly seen: RegExp
  readonly path?: string | undefined
  readonly headers?: Readonly<Record<string, string>>
  readonly method?: string | undefined
  /** The device's service speaks TLS itself. */
  readonly isToTls?: boolean
  /** The visitor comes over HTTPS. */
  readonly isSecure?: boolean
}

const refused = /^403 /
/** The device hears nothing. */
const broken = /^broken; device: $/

async function allCases(
  address: string,
  { certPem, keyPem }: TlsFixture,
): Promise<readonly Case[]> {
  const { caPem } = await createAuthority()
  const [ca, cert, key] = [caPem, certPem, keyPem].map((pem) => Buffer.from(pem))
  const http = (
    options: string,
    seen: RegExp,
    ask: Case['ask'],
    more: Partial<Case> = {},
  ): Case => ({ options: options.split(' '), kind: 'http', seen, ask, ...more })
  const connection = (options: string, seen: RegExp, ask: Case['ask']): Case[] =>
    (['tcp', 'tls'] as const).map((kind) => ({ options: options.split(' '), kind, seen, ask }))
  const tls = (options: string, seen: RegExp, ask: Case['ask']): Case => ({
    ...{ options: options.split(' '), kind: 'tls', seen, ask },
  })
  return [
    // Its port is free as long as no other case was given it.
    {
      options: ['remoteAddr'],
      kind: 'tcp',
      seen: /device: GET/,
      ask: (b) => b.remoteAddr(address),
    },
    http('allowCidr', refused, (b) => b.allowCidr(OTHERS)),
    http('denyCidr', refused, (b) => b.denyCidr(US)),
    http('allowUserAgent', refused, (b) => b.allowUserAgent('^allowed$')),
    http('denyUserAgent', refused, (b) => b.denyUserAgent('^visitor'), {
      headers: { 'user-agent': 'visitor/1' },
    }),
    http('basicAuth', /^401 /, (b) => b.basicAuth('ann', PASSWORD)),
    http('oauth', /^30\d /, (b) => b.oauth('github', ['a@b.test'], [], [], 'id', 'oauth-secret')),
    http('oidc', /^502 ERR_NGROK_5208/, (b) => b.oidc('https://id.invalid', 'id', 'oidc-secret')),
    http('webhookVerification', refused, (b) => b.webhookVerification('github', SECRET), {
      method: 'POST',
    }),
    http('circuitBreaker', /^503 /, (b) => b.circuitBreaker(0.1), { path: '/fails' }),
    http('trafficPolicy', /^451 /, (b) => b.trafficPolicy(DENIED_REQUEST)),
    http('policy', /^451 /, (b) => b.policy(DENIED_REQUEST)),
    http('mutualTlsca scheme', /^broken/, (b) => b.scheme('https').mutualTlsca(ca), {
      isSecure: true,
    }),
    http('websocketTcpConversion', /^400 ERR_NGROK_3206/, (b) => b.websocketTcpConversion()),
    http('requestHeader removeRequestHeader', /"x-added":"in" no-secret/, (b) => {
      b.requestHeader('x-added', 'in').removeRequestHeader('x-secret')
    }),
    http('responseHeader removeResponseHeader', /added:out no-from/, (b) => {
      b.responseHeader('x-out', 'out').removeResponseHeader('x-from')
    }),
    http('compression', /gzip/, (b) => b.compression(), { headers: { 'accept-encoding': 'gzip' } }),
    http('proxyProto', /^400 /, (b) => b.proxyProto('1')),
    http('appProtocol', /^502 /, (b) => b.appProtocol('http2')),
    http('metadata poolingEnabled', /^200 /, (b) => {
      b.metadata('of a pool').poolingEnabled(true)
    }),
    http('binding', /^404 ERR_NGROK_3200/, (b) => b.domain('closed.internal').binding('internal')),
    http('verifyUpstreamTls', /^200 /, (b) => b.verifyUpstreamTls(false)),
    ...connection('allowCidr', broken, (b) => b.allowCidr(OTHERS)),
    ...connection('denyCidr', broken, (b) => b.denyCidr(US)),
    ...connection('trafficPolicy', broken, (b) => b.trafficPolicy(DENIED_CONNECTION)),
    ...connection('policy', broken, (b) => b.policy(DENIED_CONNECTION)),
    ...connection('proxyProto', /device: PROXY TCP4/, (b) => b.proxyProto('1')),
    ...connection('metadata poolingEnabled', /device: (TLS|GET)/, (b) => {
      b.metadata('of a pool').poolingEnabled(true)
    }),
    ...connection('verifyUpstreamTls binding', /device: (TLS|GET)/, (b) => {
      b.verifyUpstreamTls(false).binding('public')
    }),
    tls('termination', /^answered; device: GET/, (b) => b.termination(cert, key)),
    {
      ...tls('termination', /^answered; device: $/, (b) => {
        b.termination(cert, key).verifyUpstreamTls(false)
      }),
      isToTls: true,
    },
    tls('termination mutualTlsca', broken, (b) => b.termination(cert, key).mutualTlsca(ca)),
    tls('mutualTlsca', broken, (b) => b.mutualTlsca(ca)),
  ]
}

async function startService(): Promise<number> {
  const server = createHttpServer((request, response) => {
    const { headers } = request
    const note = 'x-secret' in headers ? 'with-secret' : 'no-secret'
    response.setHeader('x-from', 'device').statusCode = request.url === '/fails' ? 500 : 200
    response.end(`${JSON.stringify(headers)} ${note} ${' '.repeat(2_000)}`)
  })
  server.listen(0, '127.0.0.1')
  await once(server, 'listening')
  onTestFinished(() => {
    server.closeAllConnections()
    server.close()
  })
  return (server.address() as AddressInfo).port
}

/** Remembers the first line of each connection; bytes that are no text are TLS. */
async function startRecorder(): Promise<{ readonly port: number; readonly heard: string[] }> {
  const heard: string[] = []
  const server = createServer((socket) => {
    socket.on('error', () => {})
    socket.once('data', (chunk) => {
      const [word = ''] = chunk.toString('latin1').split('\r\n')
      heard.push(/^[A-Z]/.test(word) ? word.replace(/\d+ \d+$/, '<ports>') : 'TLS')
      socket.end('answered')
    })
  })
  server.listen(0, '127.0.0.1')
  await once(server, 'listening')
  onTestFinished(() => void server.close())
  return { port: (server.address() as AddressInfo).port, heard }
}

const hostOf = (index: number) => `c${index}.${DOMAIN}`

/** One visit: of HTTP its status, code and what the service and the visitor saw. */
async function visitHttp(gateway: GatewayProgram, host: string, one: Case, isTls: boolean) {
  const { ready, ca } = gateway
  const body = one.method && '{}'
  const request = {
    ...{ host, path: one.path, method: one.method, body },
    ingress: isTls ? ready.ingress_https : ready.ingress_http,
    headers: { 'x-secret': 'visitor', ...one.headers },
    ...(isTls && { ca }),
  }
  const answer = await publicRequest(request).catch(() => undefined)
  if (!answer) return 'broken'
  const { status, headers } = answer
  const notes = [
    headers['ngrok-error-code'] ?? '',
    headers['content-encoding'] ?? '',
    `added:${headers['x-out'] ?? ''}`,
    headers['x-from'] ? 'from' : 'no-from',
  ]
  const seen = ['"x-added":"in"', 'no-secret'].filter((text) => answer.text.includes(text))
  return [status, ...notes, ...seen].join(' ')
}

/** What comes back for a request on a connection, decrypted where the gateway ends TLS. */
async function visitConnection(socket: Socket): Promise<string> {
  let heard = ''
  socket
    .on('error', () => {})
    .on('data', (chunk) => {
      heard += chunk
    })
  socket.end('GET / HTTP/1.0\r\n\r\n')
  await new Promise((resolve) => socket.once('close', resolve))
  return heard === '' ? 'broken' : heard
}

interface Bound extends Case {
  readonly url: URL
  readonly heard: readonly string[]
}

/** Each case as it shows to a visitor and to its device. */
function lookAt(gateway: GatewayProgram, all: readonly Bound[]): Promise<string[]> {
  const { port: tlsPort } = new URL(gateway.ready.ingress_https)
  return Promise.all(
    all.map(async (one) => {
      const { protocol, hostname, port } = one.url
      if (one.kind === 'http') {
        // A circuit breaker opens after ten answers.
        for (let turn = one.path ? 10 : 0; turn > 0; turn -= 1) {
          await visitHttp(gateway, hostname, one, false)
        }
        return visitHttp(gateway, hostname, one, protocol === 'https:' && one.isSecure === true)
      }
      const from = one.heard.length
      const target = { host: '127.0.0.1', servername: hostname, rejectUnauthorized: false }
      const socket =
        one.kind === 'tcp'
          ? connect(Number(port), '127.0.0.1')
          : connectTls({ ...target, port: Number(tlsPort) })
      return `${await visitConnection(socket)}; device: ${one.heard.slice(from).join()}`
    }),
  )
}

describe('a gateway that was killed', () => {
  it('protects each endpoint as before when the SDK is back', async () => {
    const folder = temporaryFolder()
    const { first, last } = somePorts(16)
    const env = {
      GATEWAY_HTTP_LISTEN: formatListenAddress(lastingAddress()),
      GATEWAY_HTTPS_LISTEN: formatListenAddress(lastingAddress()),
      GATEWAY_TCP_LISTEN: `127.0.0.1:${first}-${last}`,
      LOG_LEVEL: 'trace',
    }
    let gateway = await GatewayProgram.start(folder, env)
    const acl = [`bind:*.${DOMAIN}`, 'bind:closed.internal', 'bind:127.0.0.1:*']
    const { body: credential } = await gateway.manage('POST', '/credentials', { acl })
    let isUp = Promise.resolve(gateway.ready.agent_listen)
    const session = await inTime(
      new ngrok.SessionBuilder()
        .authtoken(credential.token)
        .serverAddr(await startRelay(() => isUp))
        .caCert(readFileSync(gateway.ready.ca_cert))
        .connect(),
    )
    onTestFinished(() => withDeadline(session.close(), 300, 'close').catch(() => {}))

    const secret = await createTlsFixture()
    const cases = await allCases(`127.0.0.1:${last}`, secret)
    const service = await startService()
    const tlsService = await startTlsService((socket) => socket.end('answered'))
    const bound: Bound[] = []
    for (const [index, one] of cases.entries()) {
      const builder =
        one.kind === 'http'
          ? session.httpEndpoint().domain(hostOf(index))
          : one.kind === 'tls'
            ? session.tlsEndpoint().domain(hostOf(index))
            : session.tcpEndpoint()
      one.ask(builder)
      const { port, heard } = await startRecorder()
      const to = one.isToTls ? `tls://127.0.0.1:${tlsService.port}` : `tcp://127.0.0.1:${port}`
      const target = one.kind === 'http' ? `http://127.0.0.1:${service}` : to
      const listener: Listener = await inTime(builder.listenAndForward(target))
      bound.push({ ...one, url: new URL(listener.url() ?? ''), heard })
    }
    const endpoints = async () => {
      const { body } = await gateway.manage('GET', '/endpoints?limit=100')
      const seen = body.endpoints.map((one: Record<string, unknown>) => {
        const { public_url, proto, metadata, pooling_enabled, bindings, traffic_policy } = one
        return { public_url, proto, metadata, pooling_enabled, bindings, traffic_policy }
      })
      return seen.sort((a: typeof seen, b: typeof seen) => (a.public_url < b.public_url ? -1 : 1))
    }
    const shown = await endpoints()
    expect(shown).toHaveLength(cases.length)
    const seen = await lookAt(gateway, bound)
    for (const [index, { kind, options, seen: pattern }] of cases.entries()) {
      expect.soft(seen[index], `${kind} ${options}`).toMatch(pattern)
    }

    const before = gateway
    const comesBack = createDeferred<string>()
    isUp = comesBack.promise
    const { stderr } = await before.program.end('SIGKILL')
    gateway = await GatewayProgram.start(folder, env)
    comesBack.resolve(gateway.ready.agent_listen)
    await eventually(async () => expect(await endpoints()).toHaveLength(cases.length))
    expect.soft(await endpoints()).toEqual(shown)
    const after = await lookAt(gateway, bound)
    for (const [index, { kind, options }] of cases.entries()) {
      expect.soft(after[index], `${kind} ${options}, after the reconnect`).toBe(seen[index])
    }
    const log = stderr + (await gateway.program.end()).stderr
    expect(log).toContain('endpoint online')
    const body = Buffer.from(secret.keyPem).toString('base64').slice(0, 400)
    for (const text of [PASSWORD, SECRET, 'oauth-secret', 'oidc-secret', body]) {
      expect(log).not.toContain(text)
    }
  })

  it.each([
    ['http', ngrok.HttpListenerBuilder],
    ['tcp', ngrok.TcpListenerBuilder],
    ['tls', ngrok.TlsListenerBuilder],
  ])('is tried with every option that the SDK has for %s', async (kind, builder) => {
    const cases = await allCases('127.0.0.1:1', await createTlsFixture())
    const tried = cases.filter((one) => one.kind === kind).flatMap(({ options }) => options)
    // `domain` names each endpoint of the other test.
    const known = new Set([...tried, 'domain', ...NO_OPTIONS])
    const options = Object.getOwnPropertyNames(builder.prototype)
    expect(options.filter((name) => !known.has(name))).toEqual([])
  })
})
