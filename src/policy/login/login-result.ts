import type { ActionResult } from '../exchange/policy-exchange.ts'
import { NO_ERROR, type ResultError } from '../exchange/result-error.ts'
import { formatTime, valueOfJson } from '../expression/value.ts'
import { identityOf } from './identity.ts'
import type { LoginKind } from './login-error.ts'
import { claimsOf, type LoginSession, type SessionState } from './session.ts'

/** Who is signed in, and for how long. */
export interface SignedInVisitor {
  readonly session: LoginSession
  readonly issuer: string
  /** Milliseconds since the epoch. */
  readonly end: number
}

export interface LoginEvents {
  readonly error?: ResultError
  /** Of the session that the visitor had. */
  readonly state?: SessionState | undefined
  readonly isRenewed?: boolean
}

/** Results and their types, as expressions read them. */
export function loginResults(kind: LoginKind): Record<string, string> {
  return {
    'error.code': 'string',
    'error.message': 'string',
    'identity.id': 'string',
    'identity.email': 'string',
    'identity.name': 'string',
    'identity.provider_user_id': 'string',
    [`identity.${sessionField(kind)}`]: 'string',
    'identity.claims': 'map(dyn)',
    ...(kind === 'oidc' && { identity_token: 'string' }),
    access_token: 'string',
    refresh_token: 'string',
    expires_at: 'string',
    session_timed_out: 'bool',
    session_max_duration_reached: 'bool',
    userinfo_refreshed: 'bool',
  }
}

/** What the rules that follow can read; without a visitor texts are empty. */
export function loginResult(
  kind: LoginKind,
  visitor: SignedInVisitor | undefined,
  { error = NO_ERROR, state, isRenewed = false }: LoginEvents,
): ActionResult {
  const session = visitor?.session
  const claims = session ? claimsOf(session) : {}
  return {
    error,
    identity: {
      ...identityOf(claims, visitor?.issuer ?? ''),
      ...(session === undefined && { id: '' }),
      [sessionField(kind)]: session?.id ?? '',
      claims: valueOfJson(claims),
    },
    ...(kind === 'oidc' && { identity_token: session?.idToken ?? '' }),
    access_token: session?.accessToken ?? '',
    refresh_token: session?.refreshToken ?? '',
    expires_at: visitor ? formatTime(visitor.end) : '',
    session_timed_out: state === 'timed-out',
    session_max_duration_reached: state === 'max-duration-reached',
    userinfo_refreshed: isRenewed,
  }
}

const sessionField = (kind: LoginKind) =>
  kind === 'oidc' ? 'current_session_id' : 'current_provider_session_id'
