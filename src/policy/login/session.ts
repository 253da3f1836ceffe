import { decodeJwt } from 'jose'
import * as z from 'zod'

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

/** What the provider has given: tokens that it did not give are empty. */
export interface Tokens {
  readonly idToken: string
  readonly accessToken: string
  readonly refreshToken: string
}

/** Who has signed in, for as long as it lasts. Times are milliseconds since the epoch. */
export interface LoginSession extends Tokens {
  readonly id: string
  /** What the provider's user info says, beside the claims of the identity token. */
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

/** All that the provider says of the visitor; what its user info says goes before. */
export function claimsOf({ idToken, profile }: Pick<LoginSession, 'idToken' | 'profile'>): Claims {
  return idToken === '' ? profile : { ...decodeJwt(idToken), ...profile }
}

export function sessionText(session: LoginSession): string {
  return JSON.stringify({ v: 1, ...session })
}

/** Undefined for what another version of this has written. */
export function readSession(text: string): LoginSession | undefined {
  const { success, data } = SavedSession.safeParse(JSON.parse(text))
  if (!success) return undefined
  const { v: _version, ...session } = data
  return session
}
