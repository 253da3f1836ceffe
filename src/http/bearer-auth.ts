import type { Request, RequestHandler, Response } from 'express'
import { AppError } from '../base/app-error.ts'
import type { Limiter } from '../base/limit/limiter.ts'
import type { Logger } from '../base/logger.ts'
import { type Caller, keepCaller } from './caller.ts'

/** RFC 6750 section 2.1. */
const BEARER = /^Bearer +([\w.~+/-]+=*) *$/i
const HAS_ENDED = 'The token has expired.'

export interface BearerAuthOptions {
  readonly realm: string
  /** Who has the token; `ended` when it was good once. Compares in constant time. */
  readonly authenticate: (token: string) => Caller | 'ended' | undefined
  /** Of wrong tokens, by client. */
  readonly failures: Limiter
  readonly clientOf: (request: Request) => string
  readonly log: Logger
}

/**
 * Lets requests with a valid bearer token pass, and keeps their caller. Throws AppError
 * `unauthenticated`, or `too-many-requests` to a client that keeps trying wrong ones.
 */
export function bearerAuth({
  realm,
  authenticate,
  failures,
  clientOf,
  log,
}: BearerAuthOptions): RequestHandler {
  return (request, response, next) => {
    const token = BEARER.exec(request.get('authorization') ?? '')?.[1]
    const found = token === undefined ? undefined : authenticate(token)
    if (token !== undefined && found !== undefined && found !== 'ended') {
      keepCaller(response, found, () => {
        if (typeof authenticate(token) !== 'object') throw refused(response, HAS_ENDED)
      })
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
    log.warn({ client }, found === 'ended' ? 'expired token' : 'wrong token')
    throw refused(response, found === 'ended' ? HAS_ENDED : 'The token is not valid here.')
  }

  function refused(response: Response, detail: string): AppError {
    response.setHeader('www-authenticate', `Bearer realm="${realm}", error="invalid_token"`)
    return new AppError('unauthenticated', detail)
  }
}
