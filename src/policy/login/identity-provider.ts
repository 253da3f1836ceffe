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

/** What a provider has to know to send a visitor back. */
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

/** Who knows the visitors. All of it throws LoginError, within seconds. */
export interface IdentityProvider {
  /** Makes the identifiers of its visitors its own. */
  readonly issuer: string
  /** Where the visitor signs in. */
  signInUrl(client: ClientCredentials, request: SignInRequest): Promise<URL>
  /** Who came back to `url` with a code. */
  redeem(
    client: ClientCredentials,
    url: URL,
    request: Omit<SignInRequest, 'isForced'>,
  ): Promise<SignedIn>
  /** The same visitor as they are now; undefined when the provider knows nothing of them any more. */
  renew(client: ClientCredentials, session: LoginSession): Promise<SignedIn | undefined>
}

const MAX_DETAIL = 200
/** Codes of the library for what is wrong with a token, not with the way it came. */
const TOKEN_CODES = new Set([
  'OAUTH_JWT_CLAIM_COMPARISON_FAILED',
  'OAUTH_JWT_TIMESTAMP_CHECK_FAILED',
  'OAUTH_KEY_SELECTION_FAILED',
  'OAUTH_JSON_ATTRIBUTE_COMPARISON_FAILED',
  'OAUTH_INVALID_RESPONSE',
])
/** What the client was given is not good, or not any more: RFC 6749 5.2, and GitHub's own words for it. */
const SPENT: ReadonlySet<string> = new Set([
  'invalid_grant',
  'bad_verification_code',
  'bad_refresh_token',
])

/** An access token that is not taken any more. */
export class SpentToken extends Error {
  override readonly name = 'SpentToken'
}

/** What the library says of a provider. */
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
/** Of one answer; a sign-in takes three of them at most. */
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
