import {
  AuthorizationResponseError,
  ClientError,
  type CustomFetch,
  ResponseBodyError,
  WWWAuthenticateChallengeError,
} from 'openid-client'
import { send } from '../outbound/outbound.ts'
import type { PolicyReach } from '../outbound/outbound-allow.ts'
import { LoginError } from './login-error.ts'
import type { Claims, LoginSession, Tokens } from './session.ts'

/** The application that the provider knows. */
export interface ClientCredentials {
  readonly id: string
  /** Empty for a public client. */
  readonly secret: string
}

/** Parameters that a provider needs to return the visitor. */
export interface SignInRequest {
  readonly redirectUri: string
  readonly state: string
  readonly nonce: string
  /** RFC 7636. */
  readonly verifier: string
  /** The visitor is to be asked again, even if the provider knows them. */
  readonly isForced: boolean
}

export interface SignedIn extends Tokens {
  readonly profile: Claims
}

/** A provider that authenticates visitors. All methods throw LoginError, within seconds. */
export interface IdentityProvider {
  /** Makes the identifiers of its visitors its own. */
  readonly issuer: string
  /** URL to sign in. */
  signInUrl(client: ClientCredentials, request: SignInRequest): Promise<URL>
  /** The visitor that returned to `url` with a code. */
  redeem(
    client: ClientCredentials,
    url: URL,
    request: Omit<SignInRequest, 'isForced'>,
  ): Promise<SignedIn>
  /** The visitor's current data; undefined if the provider no longer knows the visitor. */
  renew(client: ClientCredentials, session: LoginSession): Promise<SignedIn | undefined>
}

const MAX_DETAIL = 200
/** Codes of the library for an invalid token, as opposed to a failed transfer. */
const TOKEN_CODES = new Set([
  'OAUTH_JWT_CLAIM_COMPARISON_FAILED',
  'OAUTH_JWT_TIMESTAMP_CHECK_FAILED',
  'OAUTH_KEY_SELECTION_FAILED',
  'OAUTH_JSON_ATTRIBUTE_COMPARISON_FAILED',
  'OAUTH_INVALID_RESPONSE',
])
/** Errors of an invalid or expired grant: RFC 6749 5.2, and GitHub's own codes. */
const SPENT: ReadonlySet<string> = new Set([
  'invalid_grant',
  'bad_verification_code',
  'bad_refresh_token',
])

/** The access token is no longer accepted. */
export class SpentToken extends Error {
  override readonly name = 'SpentToken'
}

/** Converts an error of the library. */
export function providerFailure(cause: unknown): LoginError {
  if (cause instanceof LoginError) return cause
  if (cause instanceof AuthorizationResponseError) {
    const detail = detailOf(cause.error, cause.error_description)
    return new LoginError('refused', { detail, cause })
  }
  if (cause instanceof ResponseBodyError && SPENT.has(cause.error)) {
    return new LoginError('refused', {
      detail: detailOf(cause.error, cause.error_description),
      cause,
    })
  }
  const isOfToken = cause instanceof ClientError && TOKEN_CODES.has(cause.code ?? '')
  return new LoginError(isOfToken ? 'bad-token' : 'unreachable', { cause })
}

/** True when the provider says that the visitor's rights have ended. */
export function isEndOfSession(error: unknown): boolean {
  if (error instanceof WWWAuthenticateChallengeError) return error.status === 401
  if (error instanceof SpentToken) return true
  return error instanceof ResponseBodyError && SPENT.has(error.error)
}

/** As others have written it: printable ASCII, and not much of it. */
function detailOf(error: string, description: string | undefined): string {
  const text = description === undefined ? error : `${error}: ${description}`
  const printable = text.replace(/[^\x20-\x7e]+/g, ' ')
  return printable.length > MAX_DETAIL ? `${printable.slice(0, MAX_DETAIL)}...` : printable
}

/** Bytes of an answer of a provider. */
const MAX_ANSWER = 262_144
/** Limit of one response; a sign-in needs at most three. */
export const PROVIDER_TIMEOUT_S = 5

/** Asks providers as other servers are asked: where the gateway allows it, bounded in bytes and time. */
export function providerFetch(reach: PolicyReach): CustomFetch {
  return async (url, { method, headers, body }) => {
    const answer = await send(
      {
        url: new URL(url),
        method,
        headers: { ...headers, 'user-agent': 'device-agent-gateway' },
        body: body instanceof URLSearchParams ? body.toString() : undefined,
        maxBytes: MAX_ANSWER,
        // The library's own signal is for the same time.
        signal: AbortSignal.timeout(PROVIDER_TIMEOUT_S * 1_000),
      },
      reach,
    )
    const fields = new Headers()
    for (const [name, values] of answer.headers) {
      for (const value of values) fields.append(name, value)
    }
    const hasBody = ![204, 205, 304].includes(answer.status)
    return new Response(hasBody ? answer.body : null, { status: answer.status, headers: fields })
  }
}
