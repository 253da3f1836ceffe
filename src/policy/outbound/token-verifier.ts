import { decodeJwt, decodeProtectedHeader, errors, type JWTVerifyGetKey, jwtVerify } from 'jose'
import type { Clock } from '../../base/clock.ts'
import type { ResultError } from '../exchange/outcome.ts'
import { jsonSteps } from '../expression/account.ts'
import { type ValueInput, valueOfJson } from '../expression/value.ts'
import type { KeySource } from './key-source.ts'

/** Longest token, in characters. Most servers reject longer ones, too. */
export const MAX_TOKEN = 16_384
/** How often the parts of a token are read: to find its key, to verify it, for later rules. */
const READS = 2

export interface TokenRules {
  readonly issuers: readonly string[]
  /** Empty when any audience will do. */
  readonly audiences: readonly string[]
  readonly algorithms: readonly string[]
}

/** Why a token is not accepted, and whether it could be if its bearer had more rights. */
export interface TokenFailure extends ResultError {
  readonly status: 401 | 403
}

/** Checks JSON Web Tokens (RFC 7519) against sources of keys. */
export class TokenVerifier {
  readonly #sources: readonly KeySource[]
  readonly #clock: Clock

  constructor(sources: readonly KeySource[], clock: Clock) {
    this.#sources = sources
    this.#clock = clock
  }

  /** Answers undefined for a good token. */
  async findFailure(token: string, rules: TokenRules): Promise<TokenFailure | undefined> {
    let failure: TokenFailure = { status: 401, code: 'ERR_NGROK_3401', message: NO_KEY }
    for (const source of this.#sources) {
      const keys = await source.current().catch(() => undefined)
      if (!keys) {
        failure = { status: 401, code: 'ERR_NGROK_3422', message: 'The keys cannot be read.' }
        continue
      }
      const found = await this.#verify(token, keys, rules)
      if (found !== 'unknown-key') return found
      const renewed = await source.renewed()
      const again = renewed ? await this.#verify(token, renewed, rules) : 'unknown-key'
      if (again !== 'unknown-key') return again
    }
    return failure
  }

  async #verify(
    token: string,
    keys: JWTVerifyGetKey,
    { issuers, audiences, algorithms }: TokenRules,
  ): Promise<TokenFailure | 'unknown-key' | undefined> {
    try {
      await jwtVerify(token, keys, {
        algorithms: [...algorithms],
        issuer: [...issuers],
        ...(audiences.length > 0 && { audience: [...audiences] }),
        currentDate: new Date(this.#clock.now()),
      })
      return undefined
    } catch (error) {
      return failureOf(error)
    }
  }
}

const NO_KEY = 'No key matches the signature of the token.'

function failureOf(error: unknown): TokenFailure | 'unknown-key' {
  if (error instanceof errors.JWKSNoMatchingKey) return 'unknown-key'
  if (error instanceof errors.JWTClaimValidationFailed && ['iss', 'aud'].includes(error.claim)) {
    const message = `The token is not for this endpoint: ${error.message}.`
    return { status: 403, code: 'ERR_NGROK_3403', message }
  }
  if (error instanceof errors.JWTExpired) {
    return { status: 401, code: 'ERR_NGROK_3401', message: 'The token has expired.' }
  }
  if (error instanceof errors.JWTClaimValidationFailed && error.claim === 'nbf') {
    return { status: 401, code: 'ERR_NGROK_3401', message: 'The token is not valid yet.' }
  }
  const isMalformed = error instanceof errors.JWTInvalid || error instanceof errors.JWSInvalid
  const message = `The token is not valid: ${error instanceof Error ? error.message : error}.`
  return { status: 401, code: isMalformed ? 'ERR_NGROK_3416' : 'ERR_NGROK_3401', message }
}

/** Steps to read the parts of a token, in addition to its length. */
export function tokenSteps(token: string): number {
  const [header = '', payload = ''] = token.split('.', 2)
  const of = (part: string) => jsonSteps(Buffer.from(part, 'base64url').toString('latin1'))
  return READS * (of(header) + of(payload))
}

/** The parts of a token as later rules can read them, verified or not. */
export function tokenView(
  token: string,
  location: { readonly method: string; readonly name: string },
  verified: boolean,
): ValueInput {
  const parts = readParts(token)
  return {
    location: location.method,
    location_property: location.name,
    header: valueOfJson(parts.header),
    payload: valueOfJson(parts.payload),
    signature: token.split('.')[2] ?? '',
    verified,
  }
}

function readParts(token: string): { readonly header: unknown; readonly payload: unknown } {
  try {
    return { header: decodeProtectedHeader(token), payload: decodeJwt(token) }
  } catch {
    return { header: {}, payload: {} }
  }
}
