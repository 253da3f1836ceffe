import {
  AuthorizationResponseError,
  ClientError,
  ResponseBodyError,
  WWWAuthenticateChallengeError,
} from 'openid-client'
import { LoginError } from './login-error.ts'

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
