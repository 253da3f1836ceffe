import { createHash, createHmac, timingSafeEqual } from 'node:crypto'
import type { HeaderList } from '../exchange/header-list.ts'

/** What a provider signed: the fields it sent and the body as it came. */
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
export type Verify = (request: SignedRequest) => string | undefined

/** How old a signed timestamp may be: what Stripe and Slack advise. */
const MAX_AGE_S = 300
/** Signatures of one request that are looked at: while a secret is replaced there are two. */
const MAX_SIGNATURES = 10
export const MISMATCH = 'The signature does not match the body.'
export const STALE = 'The signature is too old, or has no timestamp.'

export interface Mac {
  readonly digest?: 'sha1' | 'sha256' | 'sha512'
  readonly encoding?: 'hex' | 'base64'
  /** Stands before each signature. */
  readonly prefix?: string
}

/** Whether one of the signatures that were presented is that of the bytes. */
export function anyOf(
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

/** Seconds or, with 13 digits, milliseconds since the epoch, or a time as RFC 3339 has it; without a zone UTC. */
export function isRecent(time: string, now: number): boolean {
  const seconds = /^\d{1,13}$/.test(time)
    ? Number(time) / (time.length === 13 ? 1_000 : 1)
    : Date.parse(withZone(time)) / 1_000
  return Math.abs(now / 1_000 - seconds) <= MAX_AGE_S
}

function withZone(time: string): string {
  if (!/^\d{4}-\d\d-\d\dT/.test(time)) return ''
  return /(?:Z|[+-]\d\d:?\d\d)$/i.test(time) ? time : `${time}Z`
}

/** Constant in time: digests have one length whatever was sent. */
export function isEqual(presented: string, expected: string): boolean {
  const digest = (text: string) => createHash('sha256').update(text).digest()
  return timingSafeEqual(digest(presented), digest(expected))
}
