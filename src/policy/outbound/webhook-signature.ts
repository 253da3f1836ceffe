import { createHash, createHmac, timingSafeEqual } from 'node:crypto'
import type { HeaderList } from '../exchange/header-list.ts'

/** What a provider signed: the fields it sent and the body as it came. */
export interface SignedRequest {
  readonly headers: HeaderList
  readonly body: Buffer
  readonly secret: string
  /** Wall time, milliseconds since the epoch. */
  readonly now: number
}

/** Answers why a signature does not hold; undefined when it does. */
type Verify = (request: SignedRequest) => string | undefined

/** How old a signed timestamp may be: what Stripe and Slack advise. */
const MAX_AGE_S = 300

/** How each provider signs. */
export const WEBHOOK_PROVIDERS: Readonly<Record<string, Verify>> = {
  github({ headers, body, secret }) {
    const signature = headers.get('x-hub-signature-256') ?? ''
    return isEqual(signature, `sha256=${hmac(secret, body)}`) ? undefined : MISMATCH
  },
  gitlab({ headers, secret }) {
    return isEqual(headers.get('x-gitlab-token') ?? '', secret) ? undefined : MISMATCH
  },
  stripe({ headers, body, secret, now }) {
    const parts = (headers.get('stripe-signature') ?? '').split(',').map((part) => part.split('='))
    const time = parts.find(([name]) => name?.trim() === 't')?.[1] ?? ''
    if (!isRecent(time, now)) return STALE
    const expected = hmac(secret, Buffer.concat([Buffer.from(`${time}.`), body]))
    // While a secret is being replaced there is a signature for each.
    const signatures = parts.filter(([name]) => name?.trim() === 'v1')
    return signatures.some(([, value = '']) => isEqual(value, expected)) ? undefined : MISMATCH
  },
  slack({ headers, body, secret, now }) {
    const time = headers.get('x-slack-request-timestamp') ?? ''
    if (!isRecent(time, now)) return STALE
    const signature = headers.get('x-slack-signature') ?? ''
    const expected = hmac(secret, Buffer.concat([Buffer.from(`v0:${time}:`), body]))
    return isEqual(signature, `v0=${expected}`) ? undefined : MISMATCH
  },
}

const MISMATCH = 'The signature does not belong to this body.'
const STALE = 'The signature is too old, or has no time.'

function hmac(secret: string, body: Buffer): string {
  return createHmac('sha256', secret).update(body).digest('hex')
}

function isRecent(seconds: string, now: number): boolean {
  return /^\d{1,12}$/.test(seconds) && Math.abs(now / 1_000 - Number(seconds)) <= MAX_AGE_S
}

/** Constant in time: digests have one length whatever was sent. */
function isEqual(presented: string, expected: string): boolean {
  const digest = (text: string) => createHash('sha256').update(text).digest()
  return timingSafeEqual(digest(presented), digest(expected))
}
