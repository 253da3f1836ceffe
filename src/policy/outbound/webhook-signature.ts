import { createHash, createHmac, createPublicKey, timingSafeEqual, verify } from 'node:crypto'
import type { HeaderList } from '../exchange/header-list.ts'

/** What a provider signed: the fields it sent and the body as it came. */
export interface SignedRequest {
  readonly headers: HeaderList
  /** As the provider has it configured, with scheme and host. */
  readonly url: string
  readonly body: Buffer
  readonly secret: string
  /** Wall time, milliseconds since the epoch. */
  readonly now: number
}

/** Answers why a signature does not hold; undefined when it does. */
type Verify = (request: SignedRequest) => string | undefined

/** How old a signed timestamp may be: what Stripe and Slack advise. */
const MAX_AGE_S = 300
/** Signatures of one request that are looked at: while a secret is replaced there are two. */
const MAX_SIGNATURES = 10
/** Bytes of a form that is taken apart; Twilio's have a few kilobytes. */
const MAX_FORM = 65_536
const MISMATCH = 'The signature does not belong to this body.'
const STALE = 'The signature is too old, or has no time.'

interface Mac {
  readonly digest?: 'sha1' | 'sha256' | 'sha512'
  readonly encoding?: 'hex' | 'base64'
  /** Stands before each signature. */
  readonly prefix?: string
}

/** A signature of the body alone; several stand behind commas. */
const ofBody = (header: string, mac: Mac = {}): Verify => {
  return ({ headers, body, secret }) => anyOf(headers.get(header), mac, secret, body)
}

/** A signature of a time and the body, each with a field of its own; `lead` stands before the body. */
const ofTimedBody = (
  header: string,
  timeHeader: string,
  lead: (time: string) => string,
  mac: Mac = {},
): Verify => {
  return ({ headers, body, secret, now }) => {
    const time = headers.get(timeHeader) ?? ''
    if (!isRecent(time, now)) return STALE
    return anyOf(headers.get(header), mac, secret, Buffer.concat([Buffer.from(lead(time)), body]))
  }
}

/** A list of `name=value` that has the time and one or more signatures of `<time>.<body>`. */
const ofParts = (header: string, timeName = 't', name = 'v1'): Verify => {
  return ({ headers, body, secret, now }) => {
    const parts = (headers.get(header) ?? '').split(',').map((part) => part.trim().split('='))
    const time = parts.find(([key]) => key === timeName)?.[1] ?? ''
    if (!isRecent(time, now)) return STALE
    const signatures = parts.filter(([key]) => key === name).map(([, value = '']) => value)
    const signed = Buffer.concat([Buffer.from(`${time}.`), body])
    return anyOf(signatures.join(','), {}, secret, signed)
  }
}

/** Standard Webhooks: id, time and body, signed with a secret that is written in base64. */
const ofMessage = (family: string): Verify => {
  return ({ headers, body, secret, now }) => {
    const time = headers.get(`${family}-timestamp`) ?? ''
    if (!isRecent(time, now)) return STALE
    const key = Buffer.from(secret.replace(/^whsec_/, ''), 'base64')
    const lead = `${headers.get(`${family}-id`) ?? ''}.${time}.`
    const presented = (headers.get(`${family}-signature`) ?? '').replaceAll(' ', ',')
    const versions = presented.split(',').filter((part) => part !== 'v1')
    const mac = { encoding: 'base64' } as const
    return anyOf(versions.join(','), mac, key, Buffer.concat([Buffer.from(lead), body]))
  }
}

const HUB = ofBody('x-hub-signature-256', { prefix: 'sha256=' })

/** How each provider signs, by the name that documents have for it. */
export const WEBHOOK_PROVIDERS: Readonly<Record<string, Verify>> = {
  aftership: ofBody('aftership-hmac-sha256', { encoding: 'base64' }),
  alchemy: ofBody('x-alchemy-signature'),
  autodesk: ofBody('x-adsk-signature', { digest: 'sha1', prefix: 'sha1hash=' }),
  bitbucket: ofBody('x-hub-signature', { prefix: 'sha256=' }),
  brex: ofMessage('webhook'),
  buildkite: ofParts('x-buildkite-signature', 'timestamp', 'signature'),
  calendly: ofParts('calendly-webhook-signature'),
  castle: ofBody('x-castle-signature', { encoding: 'base64' }),
  chargify: ofBody('x-chargify-webhook-signature-hmac-sha-256'),
  circleci: ofBody('circleci-signature', { prefix: 'v1=' }),
  clearbit: ofBody('x-request-signature', { digest: 'sha1', prefix: 'sha1=' }),
  clerk: ofMessage('svix'),
  coinbase: ofBody('x-cc-webhook-signature'),
  docusign: ofBody('x-docusign-signature-1', { encoding: 'base64' }),
  dropbox: ofBody('x-dropbox-signature'),
  facebook_graph_api: HUB,
  facebook_messenger: HUB,
  frameio: ofTimedBody(
    'x-frameio-signature',
    'x-frameio-request-timestamp',
    (time) => `v0:${time}:`,
    { prefix: 'v0=' },
  ),
  github: HUB,
  gitlab({ headers, secret }) {
    const isRight = secret !== '' && isEqual(headers.get('x-gitlab-token') ?? '', secret)
    return isRight ? undefined : MISMATCH
  },
  heroku: ofBody('heroku-webhook-hmac-sha256', { encoding: 'base64' }),
  instagram: HUB,
  intercom: ofBody('x-hub-signature', { digest: 'sha1', prefix: 'sha1=' }),
  launch_darkly: ofBody('x-ld-signature'),
  microsoft_teams({ headers, body, secret }) {
    const key = Buffer.from(secret, 'base64')
    const mac = { encoding: 'base64', prefix: 'HMAC ' } as const
    return anyOf(headers.get('authorization'), mac, key, body)
  },
  modern_treasury: ofBody('x-signature'),
  mux: ofParts('mux-signature'),
  pagerduty: ofBody('x-pagerduty-signature', { prefix: 'v1=' }),
  pusher: ofBody('x-pusher-signature'),
  sendgrid: verifySendGrid,
  sentry: ofBody('sentry-hook-signature'),
  shopify: ofBody('x-shopify-hmac-sha256', { encoding: 'base64' }),
  slack: ofTimedBody('x-slack-signature', 'x-slack-request-timestamp', (time) => `v0:${time}:`, {
    prefix: 'v0=',
  }),
  square({ headers, url, body, secret }) {
    const signed = Buffer.concat([Buffer.from(url), body])
    const mac = { encoding: 'base64' } as const
    return anyOf(headers.get('x-square-hmacsha256-signature'), mac, secret, signed)
  },
  stripe: ofParts('stripe-signature'),
  svix: ofMessage('svix'),
  terraform: ofBody('x-tfe-notification-signature', { digest: 'sha512' }),
  tiktok: ofParts('tiktok-signature', 't', 's'),
  twilio: verifyTwilio,
  typeform: ofBody('typeform-signature', { encoding: 'base64', prefix: 'sha256=' }),
  webex: ofBody('x-spark-signature', { digest: 'sha1' }),
  whatsapp: HUB,
  worldline: ofBody('x-gcs-signature', { encoding: 'base64' }),
  xero: ofBody('x-xero-signature', { encoding: 'base64' }),
  zendesk: ofTimedBody(
    'x-zendesk-webhook-signature',
    'x-zendesk-webhook-signature-timestamp',
    (time) => time,
    { encoding: 'base64' },
  ),
  zoom: ofTimedBody('x-zm-signature', 'x-zm-request-timestamp', (time) => `v0:${time}:`, {
    prefix: 'v0=',
  }),
}

/** The address and, of a form, its fields by name; of anything else the digest stands in the address. */
function verifyTwilio({ headers, url, body, secret }: SignedRequest): string | undefined {
  const isForm = /^application\/x-www-form-urlencoded\b/i.test(headers.get('content-type') ?? '')
  if (isForm && body.length > MAX_FORM) return `A form of more than ${MAX_FORM} bytes is not read.`
  const expected = new URLSearchParams(url.split('?', 2)[1]).get('bodySHA256')
  // Nothing else signs what is no form: anybody could send it with a signature of the address.
  if (!isForm && body.length > 0) {
    if (!isEqual(expected ?? '', createHash('sha256').update(body).digest('hex'))) return MISMATCH
  }
  const fields = isForm ? [...new URLSearchParams(body.toString())].sort(byName) : []
  const signed = Buffer.from(url + fields.map((pair) => pair.join('')).join(''))
  const mac = { digest: 'sha1', encoding: 'base64' } as const
  return anyOf(headers.get('x-twilio-signature'), mac, secret, signed)
}

/** A public key in the place of a secret; the signature is of time and body. */
function verifySendGrid({ headers, body, secret, now }: SignedRequest): string | undefined {
  const family = 'x-twilio-email-event-webhook'
  const time = headers.get(`${family}-timestamp`) ?? ''
  if (!isRecent(time, now)) return STALE
  const signature = Buffer.from(headers.get(`${family}-signature`) ?? '', 'base64')
  try {
    const key = createPublicKey({
      key: Buffer.from(secret, 'base64'),
      format: 'der',
      type: 'spki',
    })
    const signed = Buffer.concat([Buffer.from(time), body])
    return verify('sha256', signed, key, signature) ? undefined : MISMATCH
  } catch {
    return 'The secret is no public key in base64.'
  }
}

/** Whether one of the signatures that were presented is that of the bytes. */
function anyOf(
  presented: string | undefined,
  { digest = 'sha256', encoding = 'hex', prefix = '' }: Mac,
  secret: string | Buffer,
  signed: Buffer,
): string | undefined {
  // With an empty key anybody can sign.
  if (presented === undefined || secret.length === 0) return MISMATCH
  const expected = prefix + createHmac(digest, secret).update(signed).digest(encoding)
  const candidates = presented.split(',', MAX_SIGNATURES)
  return candidates.some((it) => isEqual(it.trim(), expected)) ? undefined : MISMATCH
}

/** Seconds since the epoch, or a time as RFC 3339 has it. */
function isRecent(time: string, now: number): boolean {
  const seconds = /^\d{1,12}$/.test(time)
    ? Number(time)
    : /^\d{4}-\d\d-\d\dT/.test(time)
      ? Date.parse(time) / 1_000
      : Number.NaN
  return Math.abs(now / 1_000 - seconds) <= MAX_AGE_S
}

/** Constant in time: digests have one length whatever was sent. */
function isEqual(presented: string, expected: string): boolean {
  const digest = (text: string) => createHash('sha256').update(text).digest()
  return timingSafeEqual(digest(presented), digest(expected))
}

/** By code units, as Twilio sorts. */
function byName([a]: readonly [string, string], [b]: readonly [string, string]): number {
  return a < b ? -1 : a > b ? 1 : 0
}
