import { createHash, createPublicKey, verify } from 'node:crypto'
import {
  anyOf,
  isEqual,
  isRecent,
  type Mac,
  MISMATCH,
  type SignedRequest,
  STALE,
  type Verify,
} from './webhook-mac.ts'
import {
  verifyBox,
  verifyContentful,
  verifyHubSpot,
  verifyHygraph,
  verifyLinear,
  verifyMailgun,
} from './webhook-messages.ts'
import { verifyPlivo } from './webhook-plivo.ts'

/** Bytes of a form that is taken apart; Twilio's have a few kilobytes. */
const MAX_FORM = 65_536
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

/** Whoever asks is told what the secret makes of a token, see `WEBHOOK_CHALLENGES`: such a body is no event. */
function verifyTwitter(request: SignedRequest): string | undefined {
  return request.body.subarray(0, 1).toString() === '{' ? TWITTER(request) : MISMATCH
}

/** By code units, as Twilio sorts. */
function byName([a]: readonly [string, string], [b]: readonly [string, string]): number {
  return a < b ? -1 : a > b ? 1 : 0
}
