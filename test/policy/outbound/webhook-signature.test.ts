import { createHash, createHmac, generateKeyPairSync, sign } from 'node:crypto'
import { describe, expect, it, onTestFinished, vi } from 'vitest'
import { HeaderList } from '../../../src/policy/exchange/header-list.ts'
import { WEBHOOK_PROVIDERS } from '../../../src/policy/outbound/webhook-signature.ts'

const SECRET = 'It is a secret'
const KEY = Buffer.from(SECRET).toString('base64')
const URL_TEXT = 'https://hooks.site.test/in?x=1'
const BODY = '{"event":"push"}'
const NOW = Date.UTC(2030, 0, 1)
const T = NOW / 1_000
const ISO = '2030-01-01T00:00:00Z'

const mac = (text: string, digest = 'sha256') => createHmac(digest, SECRET).update(text)
const hex = (text: string, digest?: string) => mac(text, digest).digest('hex')
const base64 = (text: string, digest?: string) => mac(text, digest).digest('base64')

interface Sent {
  readonly method?: string
  readonly url?: string
  readonly body?: string | Buffer
  readonly secret?: string
  readonly now?: number
}

function verify(provider: string, fields: readonly string[], sent: Sent = {}) {
  const { method = 'POST', url = URL_TEXT, body = BODY, secret = SECRET, now = NOW } = sent
  const headers = new HeaderList([...fields])
  return WEBHOOK_PROVIDERS[provider]?.({
    method,
    headers,
    url,
    body: Buffer.from(body),
    secret,
    now,
  })
}

/** What each provider sends with its body; `time` where it signs one. */
const SIGNED: Record<string, (body: string, time: number) => string[]> = {
  aftership: (body) => ['AfterShip-Hmac-Sha256', base64(body)],
  airship: (body, time) => [
    ...['X-UA-Timestamp', `${time}`],
    ...['X-UA-Signature', hex(`${time}:${body}`)],
  ],
  alchemy: (body) => ['X-Alchemy-Signature', hex(body)],
  autodesk: (body) => ['X-Adsk-Signature', `sha1hash=${hex(body, 'sha1')}`],
  bitbucket: (body) => ['X-Hub-Signature', `sha256=${hex(body)}`],
  bolt: (body) => ['X-Bolt-Hmac-Sha256', base64(body)],
  brex: (body, time) => message('Webhook', body, time),
  buildkite: (body, time) => [
    'X-Buildkite-Signature',
    `timestamp=${time},signature=${hex(`${time}.${body}`)}`,
  ],
  calendly: (body, time) => [
    'Calendly-Webhook-Signature',
    `t=${time},v1=${hex(`${time}.${body}`)}`,
  ],
  castle: (body) => ['X-Castle-Signature', base64(body)],
  chargify: (body) => ['X-Chargify-Webhook-Signature-Hmac-Sha-256', hex(body)],
  circleci: (body) => ['Circleci-Signature', `v1=${hex(body)},v2=other`],
  clearbit: (body) => ['X-Request-Signature', `sha1=${hex(body, 'sha1')}`],
  clerk: (body, time) => message('Svix', body, time),
  coinbase: (body) => ['X-CC-Webhook-Signature', hex(body)],
  docusign: (body) => ['X-DocuSign-Signature-1', base64(body)],
  dropbox: (body) => ['X-Dropbox-Signature', hex(body)],
  facebook_graph_api: (body) => ['X-Hub-Signature-256', `sha256=${hex(body)}`],
  facebook_messenger: (body) => ['X-Hub-Signature-256', `sha256=${hex(body)}`],
  frameio: (body, time) => [
    ...['X-Frameio-Request-Timestamp', `${time}`],
    ...['X-Frameio-Signature', `v0=${hex(`v0:${time}:${body}`)}`],
  ],
  github: (body) => ['X-Hub-Signature-256', `sha256=${hex(body)}`],
  go1: (body, time) => ['Go1-Signature', `t=${time},v1=${hex(`${time}.${body}`)}`],
  heroku: (body) => ['Heroku-Webhook-Hmac-SHA256', base64(body)],
  hostedhooks: (body, time) => ['HostedHooks-Signature', `t=${time},s=${hex(`${time}.${body}`)}`],
  instagram: (body) => ['X-Hub-Signature-256', `sha256=${hex(body)}`],
  intercom: (body) => ['X-Hub-Signature', `sha1=${hex(body, 'sha1')}`],
  jira: (body) => ['X-Hub-Signature', `sha256=${hex(body)}`],
  launch_darkly: (body) => ['X-LD-Signature', hex(body)],
  linear: (body) => ['Linear-Signature', hex(body)],
  microsoft_teams: (body) => ['Authorization', `HMAC ${base64(body)}`],
  modern_treasury: (body) => ['X-Signature', hex(body)],
  mongodb: (body) => ['X-MMS-Signature', base64(body, 'sha1')],
  mux: (body, time) => ['Mux-Signature', `t=${time},v1=${hex(`${time}.${body}`)}`],
  pagerduty: (body) => ['X-PagerDuty-Signature', `v1=00,v1=${hex(body)}`],
  pinwheel: (body, time) => [
    ...['X-Timestamp', `${time}`],
    ...['X-Pinwheel-Signature', `v2=${hex(`v2:${time}:${body}`)}`],
  ],
  pusher: (body) => ['X-Pusher-Signature', hex(body)],
  sentry: (body) => ['Sentry-Hook-Signature', hex(body)],
  shopify: (body) => ['X-Shopify-Hmac-SHA256', base64(body)],
  signal_sciences: (body) => ['X-SigSci-Signature', hex(body)],
  signalsciences: (body) => ['X-SigSci-Signature', hex(body)],
  slack: (body, time) => [
    ...['X-Slack-Request-Timestamp', `${time}`],
    ...['X-Slack-Signature', `v0=${hex(`v0:${time}:${body}`)}`],
  ],
  sonatype: (body) => ['X-Nexus-Webhook-Signature', hex(body, 'sha1')],
  sonatype_nexus: (body) => ['X-Nexus-Webhook-Signature', hex(body, 'sha1')],
  square: (body) => ['X-Square-HmacSha256-Signature', base64(`${URL_TEXT}${body}`)],
  stripe: (body, time) => ['Stripe-Signature', `t=${time},v1=${hex(`${time}.${body}`)},v0=old`],
  svix: (body, time) => message('Svix', body, time),
  terraform: (body) => ['X-TFE-Notification-Signature', hex(body, 'sha512')],
  tiktok: (body, time) => ['TikTok-Signature', `t=${time},s=${hex(`${time}.${body}`)}`],
  trendmicro_conformity: (body) => ['X-Conformity-Signature', hex(body)],
  twitter: (body) => ['X-Twitter-Webhooks-Signature', `sha256=${base64(body)}`],
  typeform: (body) => ['Typeform-Signature', `sha256=${base64(body)}`],
  webex: (body) => ['X-Spark-Signature', hex(body, 'sha1')],
  whatsapp: (body) => ['X-Hub-Signature-256', `sha256=${hex(body)}`],
  worldline: (body) => ['X-GCS-Signature', base64(body)],
  xero: (body) => ['X-Xero-Signature', base64(body)],
  zoom: (body, time) => [
    ...['X-Zm-Request-Timestamp', `${time}`],
    ...['X-Zm-Signature', `v0=${hex(`v0:${time}:${body}`)}`],
  ],
}

function message(family: string, body: string, time: number): string[] {
  return [
    ...[`${family}-Id`, 'msg_1', `${family}-Timestamp`, `${time}`],
    ...[`${family}-Signature`, `v1,old v1,${base64(`msg_1.${time}.${body}`)}`],
  ]
}

/** Those who sign with what a secret says in base64. */
const ENCODED = new Set(['brex', 'clerk', 'microsoft_teams', 'svix'])
const secretOf = (provider: string) => ({ secret: ENCODED.has(provider) ? KEY : SECRET })
const hasTime = (provider: string) => {
  const [one, other] = [1, 2].map((time) => JSON.stringify(SIGNED[provider]?.(BODY, time)))
  return one !== other
}

describe('a signature of a webhook', () => {
  it('is known of each provider that this gateway names', () => {
    const elsewhere = [
      ...['box', 'contentful', 'gitlab', 'graphcms', 'hubspot', 'mailgun', 'orb', 'plivo'],
      ...['sendgrid', 'twilio', 'zendesk'],
    ]
    expect([...Object.keys(SIGNED), ...elsewhere].sort()).toEqual(
      Object.keys(WEBHOOK_PROVIDERS).sort(),
    )
  })

  it.each(Object.keys(SIGNED))(
    'holds when %s has signed the body, and for no other body',
    (name) => {
      const fields = SIGNED[name]?.(BODY, T) ?? []
      expect(verify(name, fields, secretOf(name))).toBeUndefined()
      expect(verify(name, fields, { ...secretOf(name), body: `${BODY} ` })).toMatch(
        /does not match/,
      )
      expect(verify(name, fields, { secret: 'another' })).toMatch(/does not match/)
      expect(verify(name, [], secretOf(name))).toBeDefined()
    },
  )

  it.each(Object.keys(SIGNED).filter(hasTime))('of %s holds for five minutes', (name) => {
    for (const at of [T - 300, T + 300]) {
      expect(verify(name, SIGNED[name]?.(BODY, at) ?? [], secretOf(name))).toBeUndefined()
    }
    for (const at of [T - 301, T + 301, 0]) {
      expect(verify(name, SIGNED[name]?.(BODY, at) ?? [], secretOf(name))).toMatch(/too old/)
    }
  })

  it('of Zendesk has a time for people', () => {
    const fields = (time: string) => [
      ...['X-Zendesk-Webhook-Signature', base64(`${time}${BODY}`)],
      ...['X-Zendesk-Webhook-Signature-Timestamp', time],
    ]
    expect(verify('zendesk', fields(ISO))).toBeUndefined()
    expect(verify('zendesk', fields('2029-12-31T23:54:59Z'))).toMatch(/too old/)
    expect(verify('zendesk', fields('yesterday'))).toMatch(/too old/)
  })

  it('of Svix is that of its published vector', () => {
    const fields = [
      ...['svix-id', 'msg_loFOjxBNrRLzqYUf', 'svix-timestamp', '1731705121'],
      ...['svix-signature', 'v1,rAvfW3dJ/X/qxhsaXPOyyCGmRKsaKWcsNccKXlIktD0='],
    ]
    const sent = {
      body: '{"event_type":"ping","data":{"success":true}}',
      secret: 'whsec_plJ3nmyCDGBKInavdOK15jsl',
      now: 1_731_705_121_000,
    }
    expect(verify('svix', fields, sent)).toBeUndefined()
    expect(verify('svix', fields, { ...sent, body: '{}' })).toMatch(/does not match/)
  })

  it('of Orb is that of the vector of its own library, whose time is UTC everywhere', () => {
    vi.stubEnv('TZ', 'Asia/Tokyo')
    onTestFinished(() => void vi.unstubAllEnvs())
    const time = '2024-03-27T15:42:29.551'
    const signature = '9d25de966891ab0bc18754faf8d83d0980b44ae330fcc130b41a6cf3daf1f391'
    const fields = (presented: string) => [
      ...['X-Orb-Timestamp', time, 'X-Orb-Signature', presented],
    ]
    const sent = {
      body: '{"id": "o4mmewpfNNTnjfZc", "created_at": "2024-03-27T15:42:29+00:00", "type": "resource_event.test", "properties": {"message": "A test webhook from Orb. Happy testing!"}}',
      secret: 'c-UGKYdnhHh436B_sMouYAPUvXyWpzOdunZBV5dFSD8',
      now: Date.UTC(2024, 2, 27, 15, 42, 30),
    }
    expect(verify('orb', fields(`v1=${signature}`), sent)).toBeUndefined()
    expect(verify('orb', fields(`v2=${signature} v1=${signature}`), sent)).toBeUndefined()
    expect(verify('orb', fields(`v2=${signature}`), sent)).toMatch(/does not match/)
    expect(verify('orb', fields(signature), sent)).toMatch(/does not match/)
    expect(verify('orb', fields(`v1=${signature}`), { ...sent, body: '{}' })).toMatch(/not match/)
    expect(verify('orb', ['X-Orb-Timestamp', time], sent)).toMatch(/does not match/)
    for (const late of [360_000, -360_000]) {
      const now = sent.now + late
      expect(verify('orb', fields(`v1=${signature}`), { ...sent, now })).toMatch(/too old/)
    }
  })

  it('of Jira is that of its published vector', () => {
    const signature = 'a4771c39fbe90f317c7824e83ddef3caae9cb3d976c214ace1f2937e133263c9'
    const sent = { body: 'Hello World!', secret: "It's a Secret to Everybody" }
    expect(verify('jira', ['X-Hub-Signature', `sha256=${signature}`], sent)).toBeUndefined()
    expect(verify('jira', ['X-Hub-Signature', signature], sent)).toMatch(/does not match/)
  })

  it('of Linear holds as long as the time in its body', () => {
    const sent = (time: unknown) => {
      const body = JSON.stringify({ action: 'create', webhookTimestamp: time })
      return verify('linear', ['Linear-Signature', hex(body)], { body })
    }
    expect(sent(NOW)).toBeUndefined()
    for (const time of [NOW - 301_000, NOW + 301_000, 'soon', null]) {
      expect(sent(time)).toMatch(/too old/)
    }
    expect(verify('linear', ['Linear-Signature', hex('null')], { body: 'null' })).toBeUndefined()
  })

  it('of Hygraph is of body, environment and time, as its own library signs', () => {
    const at = 1_631_270_481_036
    const html = '{"name":"<b>R&D</b>"}'
    const fields = (signed: string, environment = 'master', time = at) => [
      'gcms-signature',
      `sign=${base64(signed)}, env=${environment}, t=${time}`,
    ]
    const sent = { body: html, now: at + 1_000 }
    // What generateWebhookSignature() of @hygraph/utils signs for them.
    const signed = String.raw`{"Body":"{\"name\":\"\\u003cb\\u003eR\\u0026D\\u003c/b\\u003e\"}","EnvironmentName":"master","TimeStamp":1631270481036}`
    expect(verify('graphcms', fields(signed), sent)).toBeUndefined()
    expect(verify('graphcms', fields(signed), { ...sent, body: '{}' })).toMatch(/does not match/)
    expect(verify('graphcms', fields(signed, 'other'), sent)).toMatch(/does not match/)
    expect(verify('graphcms', fields(signed, 'master', at + 1), sent)).toMatch(/does not match/)
    expect(verify('graphcms', fields(signed), { ...sent, now: at + 301_000 })).toMatch(/too old/)
    expect(verify('graphcms', ['gcms-signature', 'sign=x'], sent)).toMatch(/too old/)
  })

  it.each([
    ['https://answer.url', '12345', 'ehV3IKhLysWBxC1sy8INm0qGoQYdYsHwuoKjsX7FsXc='],
    [
      'https://answer.url:8000',
      '24725744043720739450',
      'LDphWoWimP4QM5AoWI1uwP6WmlWtt5ITPZjXIWYvCNU=',
    ],
  ])(
    'of Plivo for messages is that of the vectors of its own library: %s',
    (url, nonce, signature) => {
      const name = 'X-Plivo-Signature-V2'
      const fields = [`${name}-Nonce`, nonce, name, signature]
      const sent = { url: `${url}/?To=1`, secret: 'my_auth_token' }
      expect(verify('plivo', fields, sent)).toBeUndefined()
      expect(
        verify('plivo', [`${name}-Nonce`, nonce, 'X-Plivo-Signature-MA-V2', signature], sent),
      ).toBeUndefined()
      expect(verify('plivo', fields, { ...sent, url: `${url}/other` })).toMatch(/does not match/)
      expect(verify('plivo', fields, { ...sent, secret: 'my_auth_tokens' })).toMatch(/not match/)
      expect(verify('plivo', [`${name}-Nonce`, `${nonce}6`, name, signature], sent)).toMatch(
        /not match/,
      )
      expect(verify('plivo', [name, signature], sent)).toMatch(/does not match/)
    },
  )

  it('of Plivo for calls is of the address, the fields of a form by name, and a nonce', () => {
    const URL_OF_CALL = 'https://hooks.site.test/answer/'
    const fields = (signed: string, name = 'V3') => [
      ...['X-Plivo-Signature-V3-Nonce', 'n1', `X-Plivo-Signature-${name}`, base64(signed)],
      ...['Content-Type', 'application/x-www-form-urlencoded'],
    ]
    const form = { url: URL_OF_CALL, body: 'To=2&From=%2B1&Digits=b&Digits=a' }
    const signed = `${URL_OF_CALL}?DigitsaDigitsbFrom+1To2.n1`
    expect(verify('plivo', fields(signed), form)).toBeUndefined()
    expect(verify('plivo', fields(signed, 'MA-V3'), form)).toBeUndefined()
    for (const other of [{ body: `${form.body}&x=1` }, { url: `${URL_OF_CALL}2` }]) {
      expect(verify('plivo', fields(signed), { ...form, ...other })).toMatch(/does not match/)
    }
    const both = { ...form, url: `${URL_OF_CALL}?b=2&a=1` }
    expect(
      verify('plivo', fields(`${URL_OF_CALL}?a=1&b=2.DigitsaDigitsbFrom+1To2.n1`), both),
    ).toBeUndefined()
    const asked = { method: 'GET', url: `${URL_OF_CALL}?b=2&a=1`, body: '' }
    expect(verify('plivo', fields(`${URL_OF_CALL}?a=1&b=2.n1`), asked)).toBeUndefined()
    expect(
      verify('plivo', fields(`${URL_OF_CALL}.n1`), { ...asked, url: URL_OF_CALL }),
    ).toBeUndefined()
    // What is no form is signed by nothing, and a form that is taken apart has an end.
    const json = [...fields(`${URL_OF_CALL}.n1`).slice(0, 4), 'Content-Type', 'application/json']
    expect(verify('plivo', json, { url: URL_OF_CALL })).toMatch(/does not match/)
    const typed = ['Content-Type', 'application/json', ...fields(`${URL_OF_CALL}?To2.n1`)]
    expect(verify('plivo', typed, { url: URL_OF_CALL, body: 'To=2' })).toMatch(/does not match/)
    const put = fields(`${URL_OF_CALL}?To2.n1`)
    const other = { url: URL_OF_CALL, body: 'To=2', method: 'PUT' }
    expect(verify('plivo', put, other)).toMatch(/does not match/)
    expect(verify('plivo', put, { ...other, method: 'POST' })).toBeUndefined()
    expect(verify('plivo', fields(signed), { ...form, body: 'a=1&'.repeat(20_000) })).toMatch(
      /exceeds/,
    )
  })

  it('of Twitter is none of what its answers to questions sign', () => {
    const name = 'X-Twitter-Webhooks-Signature'
    expect(verify('twitter', [name, `sha256=${base64('token')}`], { body: 'token' })).toMatch(
      /does not match/,
    )
  })

  it('of Box is of body and time, with one of two keys', () => {
    const fields = (time: string, signed = `${BODY}${time}`, name = 'Primary') => [
      ...['Box-Delivery-Timestamp', time, `Box-Signature-${name}`, base64(signed)],
    ]
    expect(verify('box', fields(ISO))).toBeUndefined()
    expect(verify('box', fields('2029-12-31T17:00:00-07:00'))).toBeUndefined()
    expect(verify('box', fields(ISO, `${BODY}${ISO}`, 'Secondary'))).toBeUndefined()
    expect(verify('box', fields(ISO), { body: '{}' })).toMatch(/does not match/)
    expect(verify('box', fields('2029-12-31T23:54:59Z'))).toMatch(/too old/)
    expect(verify('box', ['Box-Delivery-Timestamp', ISO])).toMatch(/does not match/)
  })

  it('of Contentful is of what it names, as its own library signs', () => {
    const at = 1_767_225_600_000
    const names =
      'content-type,x-contentful-signed-headers,x-contentful-timestamp,x-contentful-topic'
    const fields = (list = names, time = `${at}`) => [
      ...['Content-Type', 'application/vnd.contentful.management.v1+json'],
      ...['X-Contentful-Topic', 'ContentManagement.Entry.publish'],
      ...['X-Contentful-Signed-Headers', list, 'X-Contentful-Timestamp', time],
      'X-Contentful-Signature',
      '8dec81505760a10b542fbc36d3aa0a772b11f759eca7b2351daaf5bba8c7c6f1',
    ]
    const sent = {
      url: 'https://hooks.site.test/trigger/SW5zdGFuY2VGbG93Q29uZmlnOjE=',
      body: '{"sys":{"id":"5KsDBWseXY6QegucYAoacS","type":"Entry"},"fields":{"title":{"en-US":"Hello, World!"}}}',
      secret: 'a'.repeat(32) + 'b'.repeat(32),
      now: at + 1_000,
    }
    expect(verify('contentful', fields(), sent)).toBeUndefined()
    for (const other of [{ body: '{}' }, { url: URL_TEXT }, { method: 'PUT' }]) {
      expect(verify('contentful', fields(), { ...sent, ...other })).toMatch(/does not match/)
    }
    expect(verify('contentful', fields(), { ...sent, now: at + 301_000 })).toMatch(/too old/)
    expect(verify('contentful', fields('content-type'), sent)).toMatch(/too old/)
    const many = `${names},${'x,'.repeat(50)}x`
    expect(verify('contentful', fields(many), sent)).toMatch(/does not match/)
  })

  it('of HubSpot is of method, address, body and time', () => {
    const fields = (url = URL_TEXT, time = NOW) => [
      ...['X-HubSpot-Request-Timestamp', `${time}`],
      ...['X-HubSpot-Signature-v3', base64(`POST${url}${BODY}${time}`)],
    ]
    expect(verify('hubspot', fields())).toBeUndefined()
    const address = 'https://hooks.site.test/in?at=a%3Ab%20c'
    const signed = 'https://hooks.site.test/in?at=a:b%20c'
    expect(verify('hubspot', fields(signed), { url: address })).toBeUndefined()
    for (const other of [{ body: '{}' }, { url: address }, { method: 'PUT' }]) {
      expect(verify('hubspot', fields(), other)).toMatch(/does not match/)
    }
    expect(verify('hubspot', fields(URL_TEXT, NOW - 301_000))).toMatch(/too old/)
  })

  it('of Mailgun stands in the body, of which it signs no more than a time and a token', () => {
    const sent = (time: number, token: unknown = 'once') => ({
      body: JSON.stringify({
        signature: { timestamp: `${time}`, token, signature: hex(`${time}${token}`) },
        'event-data': {},
      }),
    })
    expect(verify('mailgun', [], sent(T))).toBeUndefined()
    expect(verify('mailgun', [], { ...sent(T), secret: 'another' })).toMatch(/does not match/)
    expect(verify('mailgun', [], sent(T - 301))).toMatch(/too old/)
    for (const body of ['', 'null', '{}', '{"signature":null}', sent(T, 1).body]) {
      expect(verify('mailgun', [], { body })).toMatch(/too old|no time/)
    }
  })

  it('of Twilio is that of the address, and of the fields of a form by name', () => {
    const form = 'To=%2B18005551212&CallSid=CA12345&From=%2B14158675309'
    const signed = `${URL_TEXT}CallSidCA12345From+14158675309To+18005551212`
    const fields = [
      ...['Content-Type', 'application/x-www-form-urlencoded; charset=utf-8'],
      ...['X-Twilio-Signature', base64(signed, 'sha1')],
    ]
    expect(verify('twilio', fields, { body: form })).toBeUndefined()
    expect(verify('twilio', fields, { body: `${form}&More=1` })).toMatch(/does not match/)
    expect(verify('twilio', fields, { body: form, url: `${URL_TEXT}2` })).toMatch(/does not match/)
    expect(verify('twilio', fields, { body: 'a=1&'.repeat(20_000) })).toMatch(/exceeds/)
  })

  it('of Twilio has the digest of anything else in the address', () => {
    const url = `${URL_TEXT}&bodySHA256=${createHash('sha256').update(BODY).digest('hex')}`
    const fields = ['X-Twilio-Signature', base64(url, 'sha1'), 'Content-Type', 'application/json']
    expect(verify('twilio', fields, { url })).toBeUndefined()
    expect(verify('twilio', fields, { url, body: '{}' })).toMatch(/does not match/)
  })

  it('of Twilio is none of a body that nothing signs', () => {
    const fields = ['X-Twilio-Signature', base64(URL_TEXT, 'sha1'), 'Content-Type', 'text/plain']
    expect(verify('twilio', fields, { body: '' })).toBeUndefined()
    expect(verify('twilio', fields)).toMatch(/does not match/)
  })

  it.each(Object.keys(WEBHOOK_PROVIDERS).filter((name) => name !== 'sendgrid'))(
    'of %s does not hold with an empty secret',
    (name) => {
      const empty = (text: string, encoding: 'hex' | 'base64') =>
        createHmac('sha256', '').update(text).digest(encoding)
      const fields = [
        ...['X-Hub-Signature-256', `sha256=${empty(BODY, 'hex')}`, 'X-Gitlab-Token', ''],
        ...['svix-id', 'a', 'svix-timestamp', `${T}`],
        ...['svix-signature', `v1,${empty(`a.${T}.${BODY}`, 'base64')}`],
        ...['Authorization', `HMAC ${empty(BODY, 'base64')}`],
      ]
      expect(verify(name, fields, { secret: '' })).toBeDefined()
      expect(verify(name, fields, { secret: '********' })).toBeDefined()
    },
  )

  it('of SendGrid is made with a private key', () => {
    const { publicKey, privateKey } = generateKeyPairSync('ec', { namedCurve: 'P-256' })
    const secret = publicKey.export({ format: 'der', type: 'spki' }).toString('base64')
    const fields = (time: number) => [
      ...['X-Twilio-Email-Event-Webhook-Timestamp', `${time}`],
      'X-Twilio-Email-Event-Webhook-Signature',
      sign('sha256', Buffer.from(`${time}${BODY}`), privateKey).toString('base64'),
    ]
    expect(verify('sendgrid', fields(T), { secret })).toBeUndefined()
    expect(verify('sendgrid', fields(T), { secret, body: '{}' })).toMatch(/does not match/)
    expect(verify('sendgrid', fields(T - 301), { secret })).toMatch(/too old/)
    expect(verify('sendgrid', fields(T), { secret: 'no key' })).toMatch(/not a public key/)
  })

  it('is looked for among ten at most', () => {
    const many = (before: number) => [
      'X-PagerDuty-Signature',
      `${'v1=0,'.repeat(before)}v1=${hex(BODY)}`,
    ]
    expect(verify('pagerduty', many(9))).toBeUndefined()
    expect(verify('pagerduty', many(10))).toMatch(/does not match/)
  })
})
