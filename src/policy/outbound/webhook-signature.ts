import { createHash, createHmac, createPublicKey, timingSafeEqual, verify } from 'node:crypto'
import type { HeaderList } from '../exchange/header-list.ts'
import { type Outcome, respond } from '../exchange/outcome.ts'

/** The signed parts of a provider's request: its fields and its original body. */
export interface SignedRequest {
  readonly headers: HeaderList
  readonly method: string
  /** As the provider has it configured, with scheme and host. */
  readonly url: string
  readonly body: Buffer
  readonly secret: string
  /** Wall time, milliseconds since the epoch. */
  readonly now: number
}

/** Answers why a signature does not hold; undefined when it does. */
type Verify = (request: SignedRequest) => string | undefined

/** Highest age of a signed timestamp, as Stripe and Slack advise. */
const MAX_AGE_S = 300
/** Signatures of one request that are looked at: while a secret is replaced there are two. */
const MAX_SIGNATURES = 10
export const MISMATCH = 'The signature does not match the body.'
export const STALE = 'The signature is too old, or has no timestamp.'

interface Mac {
  readonly digest?: 'sha1' | 'sha256' | 'sha512'
  readonly encoding?: 'hex' | 'base64'
  /** Stands before each signature. */
  readonly prefix?: string
}

/** Whether one of the signatures that were presented is that of the bytes. */
function anyOf(
  presented: string | undefined,
  { digest = 'sha256', encoding = 'hex', prefix = '' }: Mac,
  secret: string | Buffer,
  signed: Buffer,
): string | undefined {
  // With an empty key, any sender could sign.
  if (presented === undefined || secret.length === 0) return MISMATCH
  const expected = prefix + createHmac(digest, secret).update(signed).digest(encoding)
  const candidates = presented.split(',', MAX_SIGNATURES)
  return candidates.some((it) => isEqual(it.trim(), expected)) ? undefined : MISMATCH
}

/** Seconds or, with 13 digits, milliseconds since the epoch, or a time as RFC 3339 has it; without a zone UTC. */
function isRecent(time: string, now: number): boolean {
  const seconds = /^\d{1,13}$/.test(time)
    ? Number(time) / (time.length === 13 ? 1_000 : 1)
    : Date.parse(withZone(time)) / 1_000
  return Math.abs(now / 1_000 - seconds) <= MAX_AGE_S
}

function withZone(time: string): string {
  if (!/^\d{4}-\d\d-\d\dT/.test(time)) return ''
  return /(?:Z|[+-]\d\d:?\d\d)$/i.test(time) ? time : `${time}Z`
}

/** Takes constant time: all digests have the same length. */
export function isEqual(presented: string, expected: string): boolean {
  const digest = (text: string) => createHash('sha256').update(text).digest()
  return timingSafeEqual(digest(presented), digest(expected))
}

/** Longest challenge; those of all providers are shorter. */
const MAX_TOKEN = 256
/**
 * Form of Twitter's challenges. A signature of a challenge fits no event, because events are JSON objects.
 */
const TOKEN = /^[\w+/=-]+$/
const ZOOM_ASKS = 'endpoint.url_validation'

/** The answer to a question that only its receiver knows; undefined for a request like others. `failure`: why its signature does not hold. */
type Challenge = (request: SignedRequest, failure: string | undefined) => Outcome | undefined

/** Challenges of providers that verify the receiver, by their names in documents. */
export const WEBHOOK_CHALLENGES: Readonly<Record<string, Challenge>> = {
  // https://docs.x.com/x-api/webhooks/quickstart: asks without a signature, every hour.
  twitter({ method, url, secret }) {
    const token = new URLSearchParams(url.split('?', 2)[1]).get('crc_token')
    if (method !== 'GET' || !isToken(token) || secret === '') return undefined
    const mac = createHmac('sha256', secret).update(token).digest('base64')
    return json({ response_token: `sha256=${mac}` })
  },
  // https://docs.connect.worldline-solutions.com/documentation/webhooks/
  worldline({ method, headers }) {
    const token = headers.get('x-gcs-webhooks-endpoint-verification') ?? null
    return method === 'GET' && isToken(token) ? answer('text/plain', token) : undefined
  },
  // Signed in the same way as events.
  zoom({ body, secret }, failure) {
    const token = failure === undefined ? zoomToken(body) : undefined
    if (token === undefined) return undefined
    const mac = createHmac('sha256', secret).update(token).digest('hex')
    return json({ plainToken: token, encryptedToken: mac })
  },
}

/** Responses to wrong signatures for providers that require a certain form. */
export const WEBHOOK_REFUSALS: Readonly<Record<string, Outcome>> = {
  // https://developer.xero.com/documentation/webhooks/configuring-your-server
  xero: respond({
    status: 401,
    errorCode: 'ERR_NGROK_3204',
    headers: ['ngrok-error-code', 'ERR_NGROK_3204'],
    body: '',
  }),
}

function zoomToken(body: Buffer): string | undefined {
  try {
    const { event, payload } = JSON.parse(body.toString())
    const token = event === ZOOM_ASKS ? payload.plainToken : undefined
    return typeof token === 'string' && token.length <= MAX_TOKEN ? token : undefined
  } catch {
    return undefined
  }
}

function isToken(text: string | null): text is string {
  return text !== null && text.length <= MAX_TOKEN && TOKEN.test(text)
}

const json = (value: object) => answer('application/json', JSON.stringify(value))

function answer(type: string, body: string): Outcome {
  const headers = ['content-type', type, 'cache-control', 'no-store']
  return respond({ status: 200, headers: [...headers, 'x-content-type-options', 'nosniff'], body })
}

/** As its own library writes them, with two backslashes. */
const HYGRAPH_ESCAPES: Readonly<Record<string, string>> = {
  '&': '\\\\u0026',
  '<': '\\\\u003c',
  '>': '\\\\u003e',
}
/** More than Contentful sends. */
const MAX_SIGNED_HEADERS = 50
/** Characters that HubSpot signs decoded, although the URL has them encoded. */
const HUBSPOT_DECODED = /%(?:3A|2F|3F|40|21|24|27|28|29|2A|2C|3B)/gi

/** Body and time, with one or both of two keys: one of them is being replaced. */
const verifyBox: Verify = ({ headers, body, secret, now }) => {
  const time = headers.get('box-delivery-timestamp') ?? ''
  if (!isRecent(time, now)) return STALE
  const names = ['box-signature-primary', 'box-signature-secondary']
  const presented = names.flatMap((name) => headers.get(name) ?? []).join(',')
  const signed = Buffer.concat([body, Buffer.from(time)])
  return anyOf(presented, { encoding: 'base64' }, secret, signed)
}

/** Method, path, the headers that it names, and body, each on a line. */
const verifyContentful: Verify = ({ method, url, headers, body, secret, now }) => {
  const names = (headers.get('x-contentful-signed-headers') ?? '').toLowerCase().split(',')
  // Fields that are not named are not signed.
  const isTimed = names.includes('x-contentful-timestamp')
  if (!isTimed || !isRecent(headers.get('x-contentful-timestamp') ?? '', now)) return STALE
  if (names.length > MAX_SIGNED_HEADERS) return MISMATCH
  const fields = names.map((name) => `${name}:${headers.get(name)?.trim() ?? ''}`)
  const lead = [method, pathOf(url), fields.join(';'), ''].join('\n')
  return anyOf(headers.get('x-contentful-signature'), {}, secret, join(lead, body))
}

/** The third version of its signatures: method, address, body and time. */
const verifyHubSpot: Verify = ({ method, url, headers, body, secret, now }) => {
  const time = headers.get('x-hubspot-request-timestamp') ?? ''
  if (!isRecent(time, now)) return STALE
  const address = url.replace(HUBSPOT_DECODED, decodeURIComponent)
  const signed = Buffer.concat([join(method + address, body), Buffer.from(time)])
  return anyOf(headers.get('x-hubspot-signature-v3'), { encoding: 'base64' }, secret, signed)
}

/** Body, environment and time as an object of JSON, in which HTML would do no harm. */
const verifyHygraph: Verify = ({ headers, body, secret, now }) => {
  const parts = /^sign=([^,]*), env=([^,]*), t=(\d+)$/.exec(headers.get('gcms-signature') ?? '')
  const [, presented, environment, time = ''] = parts ?? []
  if (!isRecent(time, now)) return STALE
  const fields = { Body: body.toString(), EnvironmentName: environment, TimeStamp: Number(time) }
  const signed = JSON.stringify(fields).replace(/[&<>]/g, (it) => HYGRAPH_ESCAPES[it] ?? it)
  return anyOf(presented, { encoding: 'base64' }, secret, Buffer.from(signed))
}

/** The body, in which its time stands. */
const verifyLinear: Verify = ({ headers, body, secret, now }) => {
  const time = fieldIn(body, 'webhookTimestamp')
  if (time !== undefined && !isRecent(String(time), now)) return STALE
  return anyOf(headers.get('linear-signature'), {}, secret, body)
}

/** Time and a token, which stand in the body; it signs nothing else of it. */
const verifyMailgun: Verify = ({ body, secret, now }) => {
  const { timestamp, token, signature } = signatureIn(body)
  if (!isRecent(timestamp, now)) return STALE
  return anyOf(signature, {}, secret, Buffer.from(timestamp + token))
}

function signatureIn(body: SignedRequest['body']) {
  const none = { timestamp: '', token: '', signature: undefined }
  const found = fieldIn(body, 'signature')
  if (typeof found !== 'object' || found === null) return none
  const { timestamp, token, signature } = found as Record<string, unknown>
  if (typeof token !== 'string' || typeof signature !== 'string') return none
  return { timestamp: String(timestamp), token, signature }
}

/** The value of a name in a JSON object; undefined if it does not exist. */
function fieldIn(body: SignedRequest['body'], name: string): unknown {
  try {
    return (JSON.parse(body.toString()) as Record<string, unknown> | null)?.[name]
  } catch {
    return undefined
  }
}

function pathOf(url: string): string {
  const { pathname, search } = new URL(url)
  return pathname + search
}

const join = (lead: string, body: Buffer) => Buffer.concat([Buffer.from(lead), body])

/** Most bytes of a parsed form; those of Plivo and Twilio have a few kilobytes. */
const MAX_FORM = 65_536
const MAC = { encoding: 'base64' } as const

/**
 * Version 3, for calls, signs the URL, the form fields and a nonce. Version 2, for messages, signs the URL
 * and a nonce. Plivo sends two signatures: one with the token of the request's account, one with that of its
 * main account. Either is accepted.
 */
function verifyPlivo(request: SignedRequest): string | undefined {
  const { headers, body } = request
  const isThird = headers.get('x-plivo-signature-v3-nonce') !== undefined
  const version = isThird ? 'v3' : 'v2'
  const nonce = headers.get(`x-plivo-signature-${version}-nonce`)
  if (nonce === undefined) return MISMATCH
  if (body.length > MAX_FORM) return `The form exceeds ${MAX_FORM} bytes.`
  const names = [`x-plivo-signature-${version}`, `x-plivo-signature-ma-${version}`]
  const presented = names.flatMap((name) => headers.get(name) ?? []).join(',')
  const texts = isThird ? thirdTexts(request, nonce) : secondTexts(request, nonce)
  const failures = texts.map((text) => anyOf(presented, MAC, request.secret, Buffer.from(text)))
  return failures.includes(undefined) ? undefined : MISMATCH
}

function secondTexts({ url }: SignedRequest, nonce: string): string[] {
  return basesOf(url).map((base) => base + nonce)
}

function thirdTexts({ method, url, headers, body }: SignedRequest, nonce: string): string[] {
  const isForm = /^application\/x-www-form-urlencoded\b/i.test(headers.get('content-type') ?? '')
  // Only forms are signed.
  if (body.length > 0 && (!isForm || method !== 'POST')) return []
  const query = pairsOf(url.split('?', 2)[1]).map((pair) => pair.join('='))
  const fields = pairsOf(body.toString()).map((pair) => pair.join(''))
  const mark = query.length > 0 || fields.length > 0 ? '?' : ''
  const point = query.length > 0 && fields.length > 0 ? '.' : ''
  const rest = `${mark}${query.join('&')}${point}${fields.join('')}.${nonce}`
  return basesOf(url).map((base) => base + rest)
}

/** Plivo signs an address as it was written down, which may have ended with its host. */
function basesOf(url: string): string[] {
  const [base = ''] = url.split('?', 1)
  return new URL(base).pathname === '/' ? [base, base.replace(/\/$/, '')] : [base]
}

/** By name and value, in the order of code units. */
function pairsOf(text: string | undefined): [string, string][] {
  return [...new URLSearchParams(text)].sort(
    ([a, one], [b, other]) => compare(a, b) || compare(one, other),
  )
}

const compare = (a: string, b: string) => (a < b ? -1 : a > b ? 1 : 0)

/** A signature of the body alone; several stand behind commas. */
const ofBody = (header: string, mac: Mac = {}): Verify => {
  return ({ headers, body, secret }) => anyOf(headers.get(header), mac, secret, body)
}

/** A signature of a time and the body, each in its own field. `lead` stands before the body. */
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
/** That of Intercom goes by the same name, and is another. */
const ATLASSIAN = ofBody('x-hub-signature', { prefix: 'sha256=' })
const NEXUS = ofBody('x-nexus-webhook-signature', { digest: 'sha1' })
const SIGNAL_SCIENCES = ofBody('x-sigsci-signature')
const TWITTER = ofBody('x-twitter-webhooks-signature', { encoding: 'base64', prefix: 'sha256=' })

/** How each provider signs, by the name that documents have for it. */
export const WEBHOOK_PROVIDERS: Readonly<Record<string, Verify>> = {
  aftership: ofBody('aftership-hmac-sha256', { encoding: 'base64' }),
  airship: ofTimedBody('x-ua-signature', 'x-ua-timestamp', (time) => `${time}:`),
  alchemy: ofBody('x-alchemy-signature'),
  autodesk: ofBody('x-adsk-signature', { digest: 'sha1', prefix: 'sha1hash=' }),
  bitbucket: ATLASSIAN,
  bolt: ofBody('x-bolt-hmac-sha256', { encoding: 'base64' }),
  box: verifyBox,
  brex: ofMessage('webhook'),
  buildkite: ofParts('x-buildkite-signature', 'timestamp', 'signature'),
  calendly: ofParts('calendly-webhook-signature'),
  castle: ofBody('x-castle-signature', { encoding: 'base64' }),
  chargify: ofBody('x-chargify-webhook-signature-hmac-sha-256'),
  circleci: ofBody('circleci-signature', { prefix: 'v1=' }),
  clearbit: ofBody('x-request-signature', { digest: 'sha1', prefix: 'sha1=' }),
  clerk: ofMessage('svix'),
  coinbase: ofBody('x-cc-webhook-signature'),
  contentful: verifyContentful,
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
  go1: ofParts('go1-signature'),
  graphcms: verifyHygraph,
  heroku: ofBody('heroku-webhook-hmac-sha256', { encoding: 'base64' }),
  hostedhooks: ofParts('hostedhooks-signature', 't', 's'),
  hubspot: verifyHubSpot,
  instagram: HUB,
  intercom: ofBody('x-hub-signature', { digest: 'sha1', prefix: 'sha1=' }),
  jira: ATLASSIAN,
  launch_darkly: ofBody('x-ld-signature'),
  linear: verifyLinear,
  mailgun: verifyMailgun,
  microsoft_teams({ headers, body, secret }) {
    const key = Buffer.from(secret, 'base64')
    const mac = { encoding: 'base64', prefix: 'HMAC ' } as const
    return anyOf(headers.get('authorization'), mac, key, body)
  },
  modern_treasury: ofBody('x-signature'),
  mongodb: ofBody('x-mms-signature', { digest: 'sha1', encoding: 'base64' }),
  mux: ofParts('mux-signature'),
  orb: verifyOrb,
  pagerduty: ofBody('x-pagerduty-signature', { prefix: 'v1=' }),
  pinwheel: ofTimedBody('x-pinwheel-signature', 'x-timestamp', (time) => `v2:${time}:`, {
    prefix: 'v2=',
  }),
  plivo: verifyPlivo,
  pusher: ofBody('x-pusher-signature'),
  sendgrid: verifySendGrid,
  sentry: ofBody('sentry-hook-signature'),
  shopify: ofBody('x-shopify-hmac-sha256', { encoding: 'base64' }),
  signal_sciences: SIGNAL_SCIENCES,
  signalsciences: SIGNAL_SCIENCES,
  slack: ofTimedBody('x-slack-signature', 'x-slack-request-timestamp', (time) => `v0:${time}:`, {
    prefix: 'v0=',
  }),
  sonatype: NEXUS,
  sonatype_nexus: NEXUS,
  square({ headers, url, body, secret }) {
    const signed = Buffer.concat([Buffer.from(url), body])
    const mac = { encoding: 'base64' } as const
    return anyOf(headers.get('x-square-hmacsha256-signature'), mac, secret, signed)
  },
  stripe: ofParts('stripe-signature'),
  svix: ofMessage('svix'),
  terraform: ofBody('x-tfe-notification-signature', { digest: 'sha512' }),
  tiktok: ofParts('tiktok-signature', 't', 's'),
  trendmicro_conformity: ofBody('x-conformity-signature'),
  twilio: verifyTwilio,
  twitter: verifyTwitter,
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
  if (isForm && body.length > MAX_FORM) return `The form exceeds ${MAX_FORM} bytes.`
  const expected = new URLSearchParams(url.split('?', 2)[1]).get('bodySHA256')
  // Only forms are signed: without this check, a sender could reuse a signature of the URL.
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
    return 'The secret is not a public key in base64.'
  }
}

/** Version, time and body; several signatures stand behind spaces. */
function verifyOrb({ headers, body, secret, now }: SignedRequest): string | undefined {
  const time = headers.get('x-orb-timestamp') ?? ''
  if (!isRecent(time, now)) return STALE
  const presented = headers.get('x-orb-signature')?.replaceAll(' ', ',')
  const signed = Buffer.concat([Buffer.from(`v1:${time}:`), body])
  return anyOf(presented, { prefix: 'v1=' }, secret, signed)
}

/** A challenge reveals the signature of a token; see `WEBHOOK_CHALLENGES`. Its body is never an event. */
function verifyTwitter(request: SignedRequest): string | undefined {
  return request.body.subarray(0, 1).toString() === '{' ? TWITTER(request) : MISMATCH
}

/** By code units, as Twilio sorts. */
function byName([a]: readonly [string, string], [b]: readonly [string, string]): number {
  return a < b ? -1 : a > b ? 1 : 0
}
