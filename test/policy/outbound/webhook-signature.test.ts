import { createHash, createHmac, generateKeyPairSync, sign } from 'node:crypto'
import { describe, expect, it } from 'vitest'
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
  readonly url?: string
  readonly body?: string | Buffer
  readonly secret?: string
  readonly now?: number
}

function verify(provider: string, fields: readonly string[], sent: Sent = {}) {
  const { url = URL_TEXT, body = BODY, secret = SECRET, now = NOW } = sent
  const headers = new HeaderList([...fields])
  return WEBHOOK_PROVIDERS[provider]?.({ headers, url, body: Buffer.from(body), secret, now })
}

/** What each provider sends with its body; `time` where it signs one. */
const SIGNED: Record<string, (body: string, time: number) => string[]> = {
  aftership: (body) => ['AfterShip-Hmac-Sha256', base64(body)],
  alchemy: (body) => ['X-Alchemy-Signature', hex(body)],
  autodesk: (body) => ['X-Adsk-Signature', `sha1hash=${hex(body, 'sha1')}`],
  bitbucket: (body) => ['X-Hub-Signature', `sha256=${hex(body)}`],
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
  heroku: (body) => ['Heroku-Webhook-Hmac-SHA256', base64(body)],
  instagram: (body) => ['X-Hub-Signature-256', `sha256=${hex(body)}`],
  intercom: (body) => ['X-Hub-Signature', `sha1=${hex(body, 'sha1')}`],
  launch_darkly: (body) => ['X-LD-Signature', hex(body)],
  microsoft_teams: (body) => ['Authorization', `HMAC ${base64(body)}`],
  modern_treasury: (body) => ['X-Signature', hex(body)],
  mux: (body, time) => ['Mux-Signature', `t=${time},v1=${hex(`${time}.${body}`)}`],
  pagerduty: (body) => ['X-PagerDuty-Signature', `v1=00,v1=${hex(body)}`],
  pusher: (body) => ['X-Pusher-Signature', hex(body)],
  sentry: (body) => ['Sentry-Hook-Signature', hex(body)],
  shopify: (body) => ['X-Shopify-Hmac-SHA256', base64(body)],
  slack: (body, time) => [
    ...['X-Slack-Request-Timestamp', `${time}`],
    ...['X-Slack-Signature', `v0=${hex(`v0:${time}:${body}`)}`],
  ],
  square: (body) => ['X-Square-HmacSha256-Signature', base64(`${URL_TEXT}${body}`)],
  stripe: (body, time) => ['Stripe-Signature', `t=${time},v1=${hex(`${time}.${body}`)},v0=old`],
  svix: (body, time) => message('Svix', body, time),
  terraform: (body) => ['X-TFE-Notification-Signature', hex(body, 'sha512')],
  tiktok: (body, time) => ['TikTok-Signature', `t=${time},s=${hex(`${time}.${body}`)}`],
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
    const elsewhere = ['gitlab', 'sendgrid', 'twilio', 'zendesk']
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
        /does not belong/,
      )
      expect(verify(name, fields, { secret: 'another' })).toMatch(/does not belong/)
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
    expect(verify('svix', fields, { ...sent, body: '{}' })).toMatch(/does not belong/)
  })

  it('of Twilio is that of the address, and of the fields of a form by name', () => {
    const form = 'To=%2B18005551212&CallSid=CA12345&From=%2B14158675309'
    const signed = `${URL_TEXT}CallSidCA12345From+14158675309To+18005551212`
    const fields = [
      ...['Content-Type', 'application/x-www-form-urlencoded; charset=utf-8'],
      ...['X-Twilio-Signature', base64(signed, 'sha1')],
    ]
    expect(verify('twilio', fields, { body: form })).toBeUndefined()
    expect(verify('twilio', fields, { body: `${form}&More=1` })).toMatch(/does not belong/)
    expect(verify('twilio', fields, { body: form, url: `${URL_TEXT}2` })).toMatch(/does not belong/)
    expect(verify('twilio', fields, { body: 'a=1&'.repeat(20_000) })).toMatch(/more than/)
  })

  it('of Twilio has the digest of anything else in the address', () => {
    const url = `${URL_TEXT}&bodySHA256=${createHash('sha256').update(BODY).digest('hex')}`
    const fields = ['X-Twilio-Signature', base64(url, 'sha1'), 'Content-Type', 'application/json']
    expect(verify('twilio', fields, { url })).toBeUndefined()
    expect(verify('twilio', fields, { url, body: '{}' })).toMatch(/does not belong/)
  })

  it('of Twilio is none of a body that nothing signs', () => {
    const fields = ['X-Twilio-Signature', base64(URL_TEXT, 'sha1'), 'Content-Type', 'text/plain']
    expect(verify('twilio', fields, { body: '' })).toBeUndefined()
    expect(verify('twilio', fields)).toMatch(/does not belong/)
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
    expect(verify('sendgrid', fields(T), { secret, body: '{}' })).toMatch(/does not belong/)
    expect(verify('sendgrid', fields(T - 301), { secret })).toMatch(/too old/)
    expect(verify('sendgrid', fields(T), { secret: 'no key' })).toMatch(/no public key/)
  })

  it('is looked for among ten at most', () => {
    const many = (before: number) => [
      'X-PagerDuty-Signature',
      `${'v1=0,'.repeat(before)}v1=${hex(BODY)}`,
    ]
    expect(verify('pagerduty', many(9))).toBeUndefined()
    expect(verify('pagerduty', many(10))).toMatch(/does not belong/)
  })
})
