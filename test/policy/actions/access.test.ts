// biome-ignore-all lint/suspicious/noTemplateCurlyInString: interpolations of policies
import { createHmac } from 'node:crypto'
import { describe, expect, it } from 'vitest'
import { type AddressRanges, parseCidr } from '../../../src/base/net/network.ts'
import { checkPolicy } from '../../../src/policy/check.ts'
import { onRequest, onResponse, PolicyBench, replyOf } from '../../helpers/policy-exchange.ts'

describe('restrict-ips', () => {
  it.each([
    [{ allow: ['203.0.113.0/24'] }, '203.0.113.9', true, '203.0.113.0/24'],
    [{ allow: ['203.0.113.9'] }, '203.0.113.9', true, '203.0.113.9'],
    [{ allow: ['203.0.113.0/24'] }, '203.0.114.9', false, ''],
    [{ allow: ['0.0.0.0/0'], deny: ['203.0.113.0/24'] }, '203.0.113.9', false, '203.0.113.0/24'],
    [{ allow: ['0.0.0.0/0'], deny: ['203.0.113.0/24'] }, '198.51.100.1', true, '0.0.0.0/0'],
    [{ allow: ['0.0.0.0/0'] }, '2001:db8::1', false, ''],
    [{ allow: ['2001:db8::/32'] }, '2001:db8::1', true, '2001:db8::/32'],
    [{ deny: ['10.0.0.0/8'] }, '203.0.113.9', false, ''],
    [{}, '203.0.113.9', false, ''],
    [{ allow: ['::ffff:203.0.113.0/120'] }, '203.0.113.9', true, '::ffff:203.0.113.0/120'],
    [{ allow: ['${conn.client_ip}/32'] }, '203.0.113.9', true, '203.0.113.9/32'],
  ])('%j and %s: %s', async (config, ip, passes, matched) => {
    const { outcome, exchange } = await new PolicyBench(onRequest('restrict-ips', config)).request({
      ip,
    })
    expect(outcome.kind).toBe(passes ? 'continue' : 'respond')
    expect(exchange.results.get('restrict_ips')).toMatchObject({
      action: passes ? 'allow' : 'deny',
      matched_cidr: matched,
    })
  })

  it('answers 403 with ERR_NGROK_3205 in both directions', async () => {
    for (const bench of [new PolicyBench(onRequest('restrict-ips', { allow: ['::1'] }))]) {
      expect(replyOf((await bench.request()).outcome)).toMatchObject({
        status: 403,
        errorCode: 'ERR_NGROK_3205',
      })
    }
    const bench = new PolicyBench(onResponse('restrict-ips', { allow: ['::1'] }))
    expect(replyOf((await bench.response()).outcome).status).toBe(403)
  })

  it('closes a connection', async () => {
    const actions = [{ type: 'restrict-ips', config: { allow: ['::1'] } }]
    const bench = new PolicyBench({ on_tcp_connect: [{ actions }] })
    expect(await bench.connect()).toEqual({ kind: 'close' })
  })

  it('looks at the connection, never at a header', async () => {
    const bench = new PolicyBench(onRequest('restrict-ips', { allow: ['10.0.0.0/8'] }))
    const { outcome } = await bench.request({ headers: ['X-Forwarded-For', '10.0.0.1'] })
    expect(outcome.kind).toBe('respond')
  })

  it('only tells with enforce: false', async () => {
    const bench = new PolicyBench(onRequest('restrict-ips', { enforce: false, allow: ['::1'] }))
    const { outcome, exchange } = await bench.request()
    expect(outcome.kind).toBe('continue')
    expect(exchange.results.get('restrict_ips')).toMatchObject({ action: 'deny' })
  })

  describe('with IP policies', () => {
    const document = onRequest('restrict-ips', { ip_policies: ['ipp_1'] })
    const ranges = (allow: string[], deny: string[] = []) => ({
      allow: allow.flatMap((text) => parseCidr(text) ?? []),
      deny: deny.flatMap((text) => parseCidr(text) ?? []),
    })

    it('reads them with each request', async () => {
      let current: AddressRanges | undefined = ranges(['203.0.113.0/24'])
      const bench = new PolicyBench(document, { ipPolicy: () => current })
      expect((await bench.request({ ip: '203.0.113.9' })).outcome.kind).toBe('continue')
      current = ranges(['203.0.113.0/24'], ['203.0.113.9'])
      expect((await bench.request({ ip: '203.0.113.9' })).outcome.kind).toBe('respond')
    })

    it('lets nobody pass when one of them is gone', async () => {
      let current: AddressRanges | undefined = ranges(['0.0.0.0/0'])
      const bench = new PolicyBench(document, { ipPolicy: () => current })
      current = undefined
      expect(replyOf((await bench.request()).outcome).status).toBe(500)
    })

    it('refuses one that is not there, and warns where nobody can know', () => {
      expect(() => new PolicyBench(document, { ipPolicy: () => undefined })).toThrow(
        'The IP policy ipp_1 does not exist.',
      )
      expect(new PolicyBench(document).policy.warnings.map(({ code }) => code)).toContain(
        'ERR_NGROK_2216',
      )
    })
  })

  it('answers 500 when a computed range cannot be read', async () => {
    const bench = new PolicyBench(onRequest('restrict-ips', { allow: ['${req.method}'] }))
    expect(replyOf((await bench.request()).outcome).status).toBe(500)
  })
})

describe('basic-auth', () => {
  const basic = (pair: string) => ['Authorization', `Basic ${Buffer.from(pair).toString('base64')}`]
  const bench = (changes: Record<string, unknown> = {}) =>
    new PolicyBench(
      onRequest('basic-auth', {
        credentials: ['me:correct:horse', 'you:battery staple'],
        ...changes,
      }),
    )

  it.each([
    ['me:correct:horse', true, 'me'],
    ['you:battery staple', true, 'you'],
    ['me:wrong password', false, 'me'],
    ['nobody:correct:horse', false, 'nobody'],
    ['me', false, ''],
    ['', false, ''],
  ])('%j: %s', async (pair, authorized, username) => {
    const { outcome, exchange } = await bench().request({ headers: basic(pair) })
    expect(outcome.kind).toBe(authorized ? 'continue' : 'respond')
    if (pair === '') return
    expect(exchange.results.get('basic_auth')).toEqual({
      credentials: { presented: true, username, authorized },
    })
  })

  it('asks for credentials with 401 and the realm', async () => {
    const reply = replyOf((await bench({ realm: 'my "home"' }).request()).outcome)
    expect(reply.status).toBe(401)
    expect(reply.headers.get('www-authenticate')).toBe(
      'Basic realm="my \\"home\\"", charset="UTF-8"',
    )
    const standard = replyOf((await bench().request()).outcome)
    expect(standard.headers.get('www-authenticate')).toContain('realm="ngrok"')
  })

  it('does not take another scheme for credentials', async () => {
    const { exchange } = await bench().request({ headers: ['Authorization', 'Bearer abc'] })
    expect(exchange.results.get('basic_auth')).toMatchObject({ credentials: { presented: false } })
  })

  it('computes credentials, of which no value may move the colon', async () => {
    const computed = bench({ credentials: ["me:${req.headers['x-password'][0]}"] })
    const headers = ['X-Password', 'from elsewhere', ...basic('me:from elsewhere')]
    expect((await computed.request({ headers })).outcome.kind).toBe('continue')
    const moved = ['X-Password', 'a:b', ...basic('me:a:b')]
    expect(replyOf((await computed.request({ headers: moved })).outcome).status).toBe(500)
  })

  it('only tells with enforce: false', async () => {
    const { outcome, exchange } = await bench({ enforce: false }).request()
    expect(outcome.kind).toBe('continue')
    expect(exchange.results.get('basic_auth')).toEqual({
      credentials: { presented: false, username: '', authorized: false },
    })
  })
})

describe('verify-webhook', () => {
  const SECRET = 'It is a secret'
  const body = '{"event":"push"}'
  const hmac = (text: string) => createHmac('sha256', SECRET).update(text).digest('hex')
  const now = Date.UTC(2030, 0, 1) / 1_000
  const stale = now - 301

  const bench = (provider: string, changes: Record<string, unknown> = {}) =>
    new PolicyBench(onRequest('verify-webhook', { provider, secret: SECRET, ...changes }))

  it('knows the published vector of GitHub', async () => {
    const signature = '757107ea0eb2509fc211221cce984b8a37570b6d7586c22c46f4379c8b043e17'
    const policy = new PolicyBench(
      onRequest('verify-webhook', { provider: 'github', secret: "It's a Secret to Everybody" }),
    )
    const headers = ['X-Hub-Signature-256', `sha256=${signature}`]
    expect((await policy.request({ headers, body: 'Hello, World!' })).outcome.kind).toBe('continue')
  })

  it.each([
    ['github', ['X-Hub-Signature-256', `sha256=${hmac(body)}`]],
    ['gitlab', ['X-Gitlab-Token', SECRET]],
    ['stripe', ['Stripe-Signature', `t=${now},v1=${hmac(`${now}.${body}`)},v0=old`]],
    ['stripe', ['Stripe-Signature', `t=${now},v1=00,v1=${hmac(`${now}.${body}`)}`]],
    [
      'slack',
      [
        'X-Slack-Request-Timestamp',
        `${now}`,
        'X-Slack-Signature',
        `v0=${hmac(`v0:${now}:${body}`)}`,
      ],
    ],
  ])('lets pass what %s has signed', async (provider, headers) => {
    const { outcome, exchange } = await bench(provider).request({ headers, body, method: 'POST' })
    expect(outcome.kind).toBe('continue')
    expect(exchange.results.get('verify_webhook')).toMatchObject({ verified: true })
  })

  it.each([
    ['github', []],
    ['github', ['X-Hub-Signature-256', `sha256=${hmac('other')}`]],
    ['github', ['X-Hub-Signature-256', hmac(body)]],
    ['gitlab', ['X-Gitlab-Token', 'guess']],
    ['stripe', ['Stripe-Signature', `t=${stale},v1=${hmac(`${stale}.${body}`)}`]],
    ['stripe', ['Stripe-Signature', `t=${now},v1=${hmac(`${now}.other`)}`]],
    ['stripe', ['Stripe-Signature', `v1=${hmac(`.${body}`)}`]],
    [
      'slack',
      [
        'X-Slack-Request-Timestamp',
        `${stale}`,
        'X-Slack-Signature',
        `v0=${hmac(`v0:${stale}:${body}`)}`,
      ],
    ],
    ['slack', ['X-Slack-Signature', `v0=${hmac(`v0::${body}`)}`]],
  ])('refuses what %s has not signed: %j', async (provider, headers) => {
    const { outcome, exchange } = await bench(provider).request({ headers, body, method: 'POST' })
    expect(replyOf(outcome)).toMatchObject({ status: 403, errorCode: 'ERR_NGROK_3204' })
    expect(exchange.results.get('verify_webhook')).toMatchObject({
      verified: false,
      error: { code: 'ERR_NGROK_3204' },
    })
  })

  it('answers what Twitter asks before it sends, for no text that could be an event', async () => {
    const ask = (target: string, method = 'GET') =>
      bench('twitter').request({ method, url: `https://device.example.com${target}` })
    const { outcome } = await ask('/in?crc_token=bm9uY2U%3D&nonce=1')
    const mac = createHmac('sha256', SECRET).update('bm9uY2U=').digest('base64')
    const body = JSON.stringify({ response_token: `sha256=${mac}` })
    expect(replyOf(outcome)).toMatchObject({ status: 200, body })
    const event = encodeURIComponent('{"a":1}')
    for (const target of [`/in?crc_token=${event}`, `/in?crc_token=${'a'.repeat(257)}`, '/in']) {
      expect(replyOf((await ask(target)).outcome).status).toBe(403)
    }
    expect(replyOf((await ask('/in?crc_token=a', 'POST')).outcome).status).toBe(403)
  })

  it('answers what Worldline asks before it sends', async () => {
    const token = '1b2ce8f0-6ad1-4e57-9c55-d8ea2d4e4a38'
    const ask = (value: string, method = 'GET') =>
      bench('worldline').request({
        method,
        headers: ['X-GCS-Webhooks-Endpoint-Verification', value],
        body: '',
      })
    expect(replyOf((await ask(token)).outcome)).toMatchObject({ status: 200, body: token })
    expect(replyOf((await ask('<b>')).outcome).status).toBe(403)
    expect(replyOf((await ask(token, 'POST')).outcome).status).toBe(403)
  })

  it('answers what Zoom asks before it sends, when Zoom has signed it', async () => {
    const ask = (text: string, presented = `v0=${hmac(`v0:${now}:${text}`)}`) =>
      bench('zoom').request({
        method: 'POST',
        headers: ['X-Zm-Request-Timestamp', `${now}`, 'X-Zm-Signature', presented],
        body: text,
      })
    const event = 'endpoint.url_validation'
    const asked = JSON.stringify({ payload: { plainToken: 'qgg8' }, event_ts: 1, event })
    const answer = { plainToken: 'qgg8', encryptedToken: hmac('qgg8') }
    expect(replyOf((await ask(asked)).outcome)).toMatchObject({
      status: 200,
      body: JSON.stringify(answer),
    })
    expect(replyOf((await ask(asked, 'v0=0')).outcome).status).toBe(403)
    const others = ['{"event":"meeting.started"}', 'null', '', `{"event":"${event}","payload":{}}`]
    const long = JSON.stringify({ event, payload: { plainToken: 'x'.repeat(257) } })
    for (const other of [...others, long]) {
      expect((await ask(other)).outcome.kind).toBe('continue')
    }
  })

  it('tells Xero in its own way that it has not signed', async () => {
    const ask = (changes: Record<string, unknown>, presented: string) =>
      bench('xero', changes).request({ headers: ['X-Xero-Signature', presented], body })
    const refused = { status: 401, body: '', errorCode: 'ERR_NGROK_3204' }
    expect(replyOf((await ask({}, 'no')).outcome)).toMatchObject(refused)
    expect((await ask({ enforce: false }, 'no')).outcome.kind).toBe('continue')
    const right = createHmac('sha256', SECRET).update(body).digest('base64')
    expect((await ask({}, right)).outcome.kind).toBe('continue')
  })

  it('does not reach Amazon where nobody has allowed it', async () => {
    const message = {
      ...{ Type: 'Notification', MessageId: '1', Message: 'm', SignatureVersion: '2' },
      ...{ Timestamp: new Date(now * 1_000).toISOString(), Signature: '' },
      TopicArn: 'arn:aws:sns:eu-west-1:123456789012:doors',
      SigningCertURL: `https://sns.eu-west-1.amazonaws.com/SimpleNotificationService-${'0'.repeat(32)}.pem`,
    }
    const { outcome, exchange } = await bench('sns', { secret: '123456789012' }).request({
      body: JSON.stringify(message),
    })
    expect(replyOf(outcome).status).toBe(403)
    expect(exchange.results.get('verify_webhook')).toMatchObject({
      error: { message: expect.stringMatching(/^The certificate of Amazon could not be read\./) },
    })
  })

  it('says what to do instead of providers that cannot be verified', () => {
    const problems = checkPolicy(
      JSON.stringify(onRequest('verify-webhook', { provider: 'vmware', secret: 's' })),
      { service: 'embedded' },
    )
    expect(problems[0]?.message).toContain('so use basic-auth')
  })

  it('cannot verify a body of more than a mebibyte', async () => {
    const long = 'x'.repeat(1_048_577)
    const headers = ['X-Hub-Signature-256', `sha256=${hmac(long)}`]
    const { outcome } = await bench('github').request({ headers, body: long })
    expect(replyOf(outcome).status).toBe(403)
  })

  it('only tells with enforce: false', async () => {
    const { outcome, exchange } = await bench('github', { enforce: false }).request({ body })
    expect(outcome.kind).toBe('continue')
    expect(exchange.results.get('verify_webhook')).toMatchObject({ verified: false })
  })
})
