import type { Request, RequestHandler } from 'express'
import { AppError } from '../base/app-error.ts'
import type { Limiter } from '../base/limit/limiter.ts'
import type { Logger } from '../base/logger.ts'

/** RFC 6750 section 2.1. */
const BEARER = /^Bearer +([\w.~+/-]+=*) *$/i

export interface BearerAuthOptions {
  readonly realm: string
  /** Compares in constant time. */
  readonly isValid: (token: string) => boolean
  /** Of wrong tokens, by client. */
  readonly failures: Limiter
  readonly clientOf: (request: Request) => string
  readonly log: Logger
}

/**
 * Lets requests with a valid bearer token pass. Throws AppError `unauthenticated`, or
 * `too-many-requests` to a client that keeps trying wrong ones.
 */
export function bearerAuth({
  realm,
  isValid,
  failures,
  clientOf,
  log,
}: BearerAuthOptions): RequestHandler {
  return (request, response, next) => {
    const token = BEARER.exec(request.get('authorization') ?? '')?.[1]
    if (token !== undefined && isValid(token)) {
      next()
      return
    }
    if (request.get('authorization') === undefined) {
      response.setHeader('www-authenticate', `Bearer realm="${realm}"`)
      throw new AppError('unauthenticated', 'Send the header authorization: Bearer <token>.')
    }
    const client = clientOf(request)
    const waitMs = failures.take(client)
    if (waitMs > 0) {
      const retryAfterS = waitMs / 1_000
      throw new AppError('too-many-requests', 'Too many wrong tokens.', { retryAfterS })
    }
    log.warn({ client }, 'wrong token')
    response.setHeader('www-authenticate', `Bearer realm="${realm}", error="invalid_token"`)
    throw new AppError('unauthenticated', 'The token is not valid here.')
  }
}
