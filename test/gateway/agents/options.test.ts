import { createHmac } from 'node:crypto'
import type { HttpListenerBuilder } from '@ngrok/ngrok'
import { describe, expect, it } from 'vitest'
import { type AllowEntry, parseAllowEntry } from '../../../src/policy/outbound/outbound-allow.ts'
import { startDeviceService, visit } from '../../helpers/device-sdk.ts'
import { startGithub } from '../../helpers/github-stand-in.ts'
import { startHttp2Service } from '../../helpers/http2-service.ts'
import { startOpenidProvider } from '../../helpers/openid-provider.ts'
import type { PublicRequest } from '../../helpers/public-request.ts'
import { connectSdk, inTime, sdkCode, startGateway } from '../../helpers/running-gateway.ts'
import { VisitorBrowser } from '../../helpers/visitor-browser.ts'

/** A device behind the real SDK, whose service shows the head that it got. */
async function startWith(
  options: (builder: HttpListenerBuilder) => unknown,
  answer: Parameters<typeof startDeviceService>[0] = (request, response) =>
    void response.setHeader('x-from', 'device').end(JSON.stringify(request.headers)),
) {
  const running = await startGateway()
  const session = await connectSdk(running)
  const builder = session.httpEndpoint().domain('cam.site.test')
  options(builder)
  await inTime(builder.listenAndForward(await startDeviceService(answer)), 'bind')
  return (request: Partial<PublicRequest> = {}) => visit(running, request)
}

const basic = (pair: string) => ({
  authorization: `Basic ${Buffer.from(pair).toString('base64')}`,
})

describe('the options of the SDK', () => {
  it('basicAuth lets in who knows one of the passwords', async () => {
    const ask = await startWith((builder) => {
      builder.basicAuth('ann', 'a long password')
      builder.basicAuth('ben', 'another: password')
    })
    expect(await ask()).toMatchObject({ status: 401 })
    expect(await ask({ headers: basic('ann:another: password') })).toMatchObject({ status: 401 })
    expect(await ask({ headers: basic('ann:a long password') })).toMatchObject({ status: 200 })
    expect(await ask({ headers: basic('ben:another: password') })).toMatchObject({ status: 200 })
  })

  it('allowCidr and denyCidr say who may come', async () => {
    const onlyOthers = await startWith((builder) => void builder.allowCidr('10.0.0.0/8'))
    const refused = await onlyOthers()
    expect(refused.status).toBe(403)
    expect(refused.headers).toMatchObject({ 'ngrok-error-code': 'ERR_NGROK_3205' })
    const allOthers = await startWith((builder) => void builder.denyCidr('127.0.0.0/8'))
    expect(await allOthers()).toMatchObject({ status: 403 })
    const us = await startWith((builder) => void builder.denyCidr('10.0.0.0/8'))
    expect(await us()).toMatchObject({ status: 200 })
  })

  it.each<[string, readonly string[], readonly string[], string | undefined, number]>([
    ['one that deny knows', [], ['(?i)bot', 'spider'], 'GoogleBot/2', 403],
    ['one that deny does not know', [], ['(?i)bot', 'spider'], 'curl/8', 200],
    ['one that allow knows, although deny does, too', ['images'], ['bot'], 'bot-images', 200],
    ['one that only allow could know', ['^curl/', '^wget/'], [], 'Mozilla/5', 403],
    ['the second that allow knows', ['^curl/', '^wget/'], [], 'wget/1', 200],
    ['one that neither knows', ['^curl/'], ['bot'], 'Mozilla/5', 200],
    ['one without a name', [], ['bot'], undefined, 403],
    ['one without a name that allow knows', ['^$'], ['bot'], undefined, 200],
  ])('a user agent is judged: %s', async (_, allow, deny, name, status) => {
    const ask = await startWith((builder) => {
      for (const pattern of allow) builder.allowUserAgent(pattern)
      for (const pattern of deny) builder.denyUserAgent(pattern)
    })
    const answer = await ask(name === undefined ? {} : { headers: { 'user-agent': name } })
    expect(answer.status).toBe(status)
    if (status === 403) expect(answer.headers).toHaveProperty('ngrok-error-code', 'ERR_NGROK_3211')
  })

  it('headers are removed and added on both ways', async () => {
    const ask = await startWith((builder) => {
      builder.requestHeader('X-Added', 'one: two')
      builder.removeRequestHeader('x-secret')
      builder.responseHeader('x-out', 'here')
      builder.removeResponseHeader('x-from')
    })
    const answer = await ask({ headers: { 'x-secret': 's', 'x-kept': 'k' } })
    const seen = JSON.parse(answer.body.toString())
    expect(seen).toMatchObject({ 'x-added': 'one: two', 'x-kept': 'k' })
    expect(seen).not.toHaveProperty('x-secret')
    expect(answer.headers).toMatchObject({ 'x-out': 'here' })
    expect(answer.headers).not.toHaveProperty('x-from')
  })

  it('appProtocol says what the service speaks', async () => {
    const running = await startGateway()
    const session = await connectSdk(running)
    const { port } = await startHttp2Service((stream, headers) => {
      stream.respond({ 'x-host': headers[':authority'] })
      stream.end('in HTTP/2')
    })
    const builder = session.httpEndpoint().domain('cam.site.test').appProtocol('http2')
    await inTime(builder.listenAndForward(`http://127.0.0.1:${port}`), 'bind')
    expect(await visit(running)).toMatchObject({ status: 200, text: 'in HTTP/2' })
    expect(await (await startWith((it) => void it.appProtocol('http1')))()).toMatchObject({
      status: 200,
    })
  })

  it('appProtocol is refused by name where nobody knows it', async () => {
    const running = await startGateway()
    const builder = (await connectSdk(running)).httpEndpoint().domain('cam.site.test')
    const refused = builder.appProtocol('nonsense').listen()
    await expect(inTime(refused)).rejects.toThrow(/nonsense is unknown.*ERR_NGROK_301/s)
  })

  it('a service of HTTP/2 that is not there is told as one', async () => {
    const running = await startGateway()
    const session = await connectSdk(running)
    const builder = session.httpEndpoint().domain('cam.site.test').appProtocol('http2')
    await inTime(builder.listenAndForward('http://127.0.0.1:1'), 'bind')
    const answer = await visit(running)
    expect(answer.headers).toHaveProperty('ngrok-error-code', 'ERR_NGROK_8012')
  })

  it('compression is the last thing that happens to an answer', async () => {
    const replace = {
      type: 'response-body-find-replace',
      config: { replacements: [{ from: 'secret', to: 'public' }] },
    }
    const ask = await startWith(
      (builder) => {
        builder.compression()
        builder.trafficPolicy(JSON.stringify({ on_http_response: [{ actions: [replace] }] }))
      },
      (_request, response) => void response.end('a secret '.repeat(100)),
    )
    const plain = await ask()
    expect(plain.body.toString()).toBe('a public '.repeat(100))
    const packed = await ask({ headers: { 'accept-encoding': 'gzip' } })
    expect(packed.headers).toHaveProperty('content-encoding', 'gzip')
    expect(packed.body.length).toBeLessThan(200)
  })

  it('circuitBreaker answers for an upstream that fails', async () => {
    const ask = await startWith(
      (builder) => void builder.circuitBreaker(0.5),
      (_request, response) => void response.writeHead(500).end(),
    )
    for (let sent = 0; sent < 10; sent += 1) expect(await ask()).toMatchObject({ status: 500 })
    expect(await ask()).toMatchObject({ status: 503 })
  })

  it('webhookVerification lets in what its provider has signed', async () => {
    const ask = await startWith((builder) => void builder.webhookVerification('GitHub', 'shared'))
    const body = Buffer.from('{"event": 1}')
    const signature = `sha256=${createHmac('sha256', 'shared').update(body).digest('hex')}`
    const headers = { 'x-hub-signature-256': signature }
    expect(await ask({ method: 'POST', body, headers })).toMatchObject({ status: 200 })
    expect(await ask({ method: 'POST', body: Buffer.from('{}'), headers })).toMatchObject({
      status: 403,
    })
  })

  it('oidc and oauth let in who has signed in, and is named', async () => {
    const outboundAllow = [parseAllowEntry('127.0.0.1') as AllowEntry]
    const running = await startGateway({ outboundAllow })
    const session = await connectSdk(running)
    const service = await startDeviceService((_request, response) => void response.end('in'))
    const urlOf = (host: string) => new VisitorBrowser(running).urlOf(host)
    const github = await startGithub()
    const provider = await startOpenidProvider({
      redirectUris: [`${urlOf('oidc.site.test')}ngrok/callback`],
      users: {
        ann: { email: 'Ann@site.test', email_verified: true },
        ben: { email: 'ben@ELSE.test', email_verified: true },
        eve: { email: 'eve@not-else.test', email_verified: true },
        ivo: {},
      },
    })
    const { issuer, clientId, clientSecret } = provider
    const allowedEmails = ['ANN@site.test']
    const allowedDomains = ['else.test']
    const endpoints = [
      session
        .httpEndpoint()
        .domain('oidc.site.test')
        .oidc(issuer, clientId, clientSecret, allowedEmails, allowedDomains, ['email']),
      session
        .httpEndpoint()
        .domain('oauth.site.test')
        .oauth(
          'github',
          allowedEmails,
          allowedDomains,
          [],
          github.client.client_id,
          github.client.client_secret,
        ),
    ]
    for (const endpoint of endpoints) await inTime(endpoint.listenAndForward(service), 'bind')

    const people = [
      ['ann', 'ann@SITE.test', 200],
      ['ben', 'ben@else.test', 200],
      ['eve', 'eve@not-else.test', 403],
      ['ivo', '', 403],
    ] as const
    for (const [login, email, status] of people) {
      const page = await new VisitorBrowser(running).signIn(urlOf('oidc.site.test'), login)
      expect(page.status, login).toBe(status)
      const emails = email === '' ? [] : [{ email, primary: true, verified: true }]
      github.user = { id: 1, login, name: null, emails }
      const other = await new VisitorBrowser(running).open(urlOf('oauth.site.test'))
      expect(other.status, login).toBe(status)
      if (status === 200) continue
      expect(other.headers).toHaveProperty('ngrok-error-code', 'ERR_GATEWAY_NOT_ALLOWED')
    }
  })

  it('are met before the policy, which they do not replace', async () => {
    const limit = {
      type: 'rate-limit',
      config: {
        name: 'few',
        algorithm: 'sliding_window',
        capacity: 1,
        rate: '60s',
        bucket_key: ['conn.client_ip'],
      },
    }
    const ask = await startWith((builder) => {
      builder.basicAuth('ann', 'a long password')
      builder.trafficPolicy(
        JSON.stringify({
          on_http_request: [{ actions: [limit] }],
        }),
      )
    })
    expect(await ask()).toMatchObject({ status: 401 })
    expect(await ask()).toMatchObject({ status: 401 })
    expect(await ask({ headers: basic('ann:a long password') })).toMatchObject({ status: 200 })
    expect(await ask({ headers: basic('ann:a long password') })).toMatchObject({ status: 429 })
  })

  it.each<[string, (builder: HttpListenerBuilder) => unknown, string]>([
    ['oauth without a client', (builder) => builder.oauth('google'), '9026'],
    ['oidc without an issuer', (b) => b.oidc('id.test', 'id', 'secret'), '9026'],
    ['no certificate of an authority', (b) => b.mutualTlsca(Buffer.from('PEM')), '9026'],
    ['a short password', (builder) => builder.basicAuth('a', 'short'), '9026'],
    ['a password that would be computed', (b) => b.basicAuth('a', 'long ${' + '1}'), '301'],
    ['no pattern', (builder) => builder.denyUserAgent('('), '9026'],
    ['no range', (builder) => builder.allowCidr('10.0.0.0/33'), '9026'],
    ['an unknown provider', (b) => b.webhookVerification('nobody', 's'), '9026'],
    ['a header that is none', (builder) => builder.requestHeader('a b', 'c'), '9026'],
  ])('refuse what cannot be in force: %s', async (_, options, code) => {
    const session = await connectSdk(await startGateway())
    const builder = session.httpEndpoint().domain('cam.site.test')
    options(builder)
    expect(await sdkCode(builder.listen())).toBe(`ERR_NGROK_${code}`)
  })
})
