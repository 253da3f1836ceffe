import { createHash } from 'node:crypto'
import { decodeJwt } from 'jose'
import * as z from 'zod'
import { loginCookieName, setLoginCookie } from '../exchange/login-cookie.ts'
import { LoginError } from './login-error.ts'
import type { Sealer } from './login-flow.ts'

const SavedSession = z.strictObject({
  v: z.literal(1),
  id: z.string(),
  idToken: z.string(),
  accessToken: z.string(),
  refreshToken: z.string(),
  profile: z.record(z.string(), z.unknown()),
  createdAt: z.number(),
  seenAt: z.number(),
  refreshedAt: z.number(),
})

/** Tokens of the provider; missing tokens are empty. */
export interface Tokens {
  readonly idToken: string
  readonly accessToken: string
  readonly refreshToken: string
}

/** A signed-in visitor. Times are milliseconds since the epoch. */
export interface LoginSession extends Tokens {
  readonly id: string
  /** User info of the provider, in addition to the claims of the identity token. */
  readonly profile: Claims
  readonly createdAt: number
  readonly seenAt: number
  readonly refreshedAt: number
}

export type Claims = Readonly<Record<string, unknown>>

/** How long sessions last, in milliseconds. */
export interface SessionLimits {
  readonly maxMs: number
  readonly idleMs: number | undefined
  /** After that the provider is asked again. */
  readonly refreshMs: number | undefined
}

export type SessionState = 'valid' | 'timed-out' | 'max-duration-reached'

export function sessionState(
  { createdAt, seenAt }: LoginSession,
  { maxMs, idleMs }: SessionLimits,
  now: number,
): SessionState {
  if (now >= createdAt + maxMs) return 'max-duration-reached'
  return idleMs !== undefined && now >= seenAt + idleMs ? 'timed-out' : 'valid'
}

/** When it ends unless its visitor comes back before. */
export function sessionEnd({ createdAt, seenAt }: LoginSession, { maxMs, idleMs }: SessionLimits) {
  return Math.min(
    createdAt + maxMs,
    idleMs === undefined ? Number.POSITIVE_INFINITY : seenAt + idleMs,
  )
}

/** All claims about the visitor. User info comes before the identity token. */
export function claimsOf({ idToken, profile }: Pick<LoginSession, 'idToken' | 'profile'>): Claims {
  return idToken === '' ? profile : { ...decodeJwt(idToken), ...profile }
}

function sessionText(session: LoginSession): string {
  return JSON.stringify({ v: 1, ...session })
}

/** Undefined for data of another version. */
function readSession(text: string): LoginSession | undefined {
  const { success, data } = SavedSession.safeParse(JSON.parse(text))
  if (!success) return undefined
  const { v: _version, ...session } = data
  return session
}

/** A visitor for later rules. Unknown fields are empty. */
interface Identity {
  /** The same for the same person at the same provider. */
  readonly id: string
  /** Empty if the provider marks it as unverified: rules admit visitors by it. */
  readonly email: string
  readonly name: string
  readonly provider_user_id: string
}

/** `issuer` makes identifiers of different providers different. */
export function identityOf(claims: Claims, issuer: string): Identity {
  const subject = text(claims.sub)
  const isVerified = isTrue(claims.email_verified) || isTrue(claims.xms_edov)
  const isUnverified = ANY_TENANT.test(issuer) ? !isVerified : isFalse(claims.email_verified)
  const digest = createHash('sha256')
    .update(JSON.stringify([issuer, subject]))
    .digest('base64url')
  return {
    id: `idt_${digest.slice(0, 27)}`,
    email: isUnverified ? '' : text(claims.email),
    name: text(claims.name) || text(claims.preferred_username),
    provider_user_id: subject,
  }
}

/** Any administrator of a tenant can set the email of its users freely. */
const ANY_TENANT = /^https:\/\/login\.microsoftonline\.com\//
const isTrue = (claim: unknown) => claim === true || claim === 'true'
const isFalse = (claim: unknown) => claim === false || claim === 'false'
const text = (claim: unknown) => (typeof claim === 'string' ? claim : '')

const PURPOSE = 'session'
/** Browsers keep 4,096 bytes of a cookie with its name and its attributes. */
const MAX_VALUE = 3_800
const MAX_PARTS = 5

/** Owner of the cookies. */
export interface CookieOwner {
  /** Different for log-ins that do not share their sessions. */
  readonly tag: string
  readonly isSecure: boolean
  readonly sealer: Sealer
}

/** The session in the cookies of a request; undefined if there is no valid session. */
export function sessionIn(
  cookie: (name: string) => string | undefined,
  { sealer, ...owner }: CookieOwner,
): LoginSession | undefined {
  const sealed = valuesIn(cookie, owner).join('')
  const text = sealed === '' ? undefined : sealer.open(sealed, PURPOSE)
  return text === undefined ? undefined : readSession(text)
}

/** Characters of the session in the cookies of a request. */
export function sessionLength(
  cookie: (name: string) => string | undefined,
  owner: Omit<CookieOwner, 'sealer'>,
): number {
  return valuesIn(cookie, owner).reduce((sum, { length }) => sum + length, 0)
}

/** Set-Cookie values. Throws LoginError for a session that is too large. */
export function sessionCookies(
  session: LoginSession,
  maxAgeS: number,
  cookie: (name: string) => string | undefined,
  { sealer, ...owner }: CookieOwner,
): string[] {
  const sealed = sealer.seal(sessionText(session), PURPOSE)
  const parts = sealed.match(new RegExp(`.{1,${MAX_VALUE}}`, 'g')) ?? []
  if (parts.length > MAX_PARTS) throw new LoginError('session-too-large')
  const { isSecure } = owner
  const kept = parts.map((part, index) =>
    setLoginCookie(partName(owner, index), part, { maxAgeS, isSecure }),
  )
  return [...kept, ...forgetSession(cookie, owner, parts.length)]
}

/** Set-Cookie values that remove a session from the browser, beginning with a part. */
export function forgetSession(
  cookie: (name: string) => string | undefined,
  owner: Omit<CookieOwner, 'sealer'>,
  from = 0,
): string[] {
  const names = Array.from({ length: MAX_PARTS }, (_, index) => partName(owner, index)).slice(from)
  const { isSecure } = owner
  return names
    .filter((name) => cookie(name) !== undefined)
    .map((name) => setLoginCookie(name, '', { maxAgeS: 0, isSecure }))
}

function valuesIn(
  cookie: (name: string) => string | undefined,
  owner: Omit<CookieOwner, 'sealer'>,
): string[] {
  const values: string[] = []
  for (let index = 0; index < MAX_PARTS; index += 1) {
    const value = cookie(partName(owner, index))
    if (value === undefined) break
    values.push(value)
  }
  return values
}

function partName({ tag, isSecure }: Omit<CookieOwner, 'sealer'>, index: number): string {
  const name = loginCookieName('session', tag, isSecure)
  return index === 0 ? name : `${name}.${index}`
}
