import type { Request, RequestHandler } from 'express'
import { AppError } from '../../base/app-error.ts'
import type { Clock } from '../../base/clock.ts'
import { FailureLimiter } from '../../base/limit/failure-limiter.ts'
import { TokenBuckets } from '../../base/limit/token-buckets.ts'
import type { Logger } from '../../base/logger.ts'
import { peerAddress } from '../../http/client-address.ts'
import type { Authority } from '../access/authority.ts'
import type { ApiKey } from '../records/api-key-store.ts'
import { ServiceError } from '../records/service-error.ts'
import { setCaller } from './caller.ts'

/** A fleet of a thousand devices is made with three thousand requests, in less than a minute. */
const REQUESTS = { capacity: 300, refillPerS: 80, maxKeys: 1_000 }
const VERSION = '2'
const BEARER = /^Bearer +(\S+) *$/i

export interface ApiKeyAuthDeps {
  readonly authority: Authority
  readonly log: Logger
  readonly clock: Clock
}

/**
 * Lets requests with a valid API key pass, for each key 300 at once and then 80 a second. Throws ServiceError 200, 202,
 * 203, 206, 208 or 636, and AppError `unauthenticated` or `too-many-requests`.
 */
export function apiKeyAuth({ authority, log, clock }: ApiKeyAuthDeps): RequestHandler {
  const requests = new TokenBuckets({ ...REQUESTS, clock })
  const failures = new FailureLimiter(clock)
  return (request, response, next) => {
    const apiKey = authenticate(request)
    const waitMs = requests.take(apiKey.id)
    if (waitMs > 0) {
      throw new AppError(
        'too-many-requests',
        `An API key may make ${REQUESTS.refillPerS} requests a second.`,
        { retryAfterS: waitMs / 1_000 },
      )
    }
    authority.noteUse(apiKey)
    setCaller(response, apiKey, { kind: 'api-key', authority })
    next()
  }

  function authenticate(request: Request): ApiKey {
    const header = request.get('authorization')
    if (header === undefined) {
      throw new ServiceError(200, 'Send the header authorization: Bearer <API key>.')
    }
    try {
      return authority.authenticateApiKey(BEARER.exec(header)?.[1] ?? '')
    } catch (error) {
      const client = peerAddress(request)
      const waitMs = failures.take(client)
      if (waitMs > 0) {
        const retryAfterS = waitMs / 1_000
        throw new AppError('too-many-requests', 'Too many wrong API keys.', { retryAfterS })
      }
      log.warn({ client }, 'wrong API key')
      throw error
    }
  }
}

/** Requires the version header. Throws ServiceError 218 without it, 217 for another version. */
export const versionHeader: RequestHandler = (request, _response, next) => {
  const version = request.get('svc-version') ?? request.get('ngrok-version')
  if (version === undefined) throw new ServiceError(218, 'Send the header svc-version: 2.')
  if (version !== VERSION) {
    throw new ServiceError(217, `The only version of this API is ${VERSION}.`)
  }
  next()
}
