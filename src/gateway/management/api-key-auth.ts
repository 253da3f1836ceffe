import type { Request, RequestHandler, Response } from 'express'
import { AppError } from '../../base/app-error.ts'
import type { Clock } from '../../base/clock.ts'
import { FailureLimiter } from '../../base/limit/failure-limiter.ts'
import { TokenBuckets } from '../../base/limit/token-buckets.ts'
import type { Logger } from '../../base/logger.ts'
import { peerAddress } from '../../http/client-address.ts'
import type { Authority } from '../access/authority.ts'
import type { ClusterNode } from '../cluster/cluster-node.ts'
import type { ApiKey } from '../records/api-key-store.ts'
import { ServiceError } from '../records/service-error.ts'
import { setCaller } from './caller.ts'

const REQUESTS = { capacity: 300, refillPerS: 80, maxKeys: 1_000 }
const VERSION = '2'
const BEARER = /^Bearer +(\S+) *$/i

export interface ApiKeyAuthDeps {
  readonly authority: Authority
  /** Undefined where there is one gateway. */
  readonly node?: ClusterNode | undefined
  readonly log: Logger
  readonly clock: Clock
}

/**
 * Lets requests with a valid API key pass, for each key 300 at once and then 80 a second. Throws ServiceError 200, 202,
 * 203, 206, 208 or 636, and AppError `unauthenticated` or `too-many-requests`.
 */
export function apiKeyAuth({ authority, node, log, clock }: ApiKeyAuthDeps): RequestHandler {
  const requests = new TokenBuckets({ ...REQUESTS, clock })
  const failures = new FailureLimiter(clock, () => node?.gateways ?? 1)
  return (request, response, next) => {
    const apiKey = authenticate(request)
    const waitMs = requests.take(apiKey.id)
    if (waitMs > 0) {
      throw new AppError(
        'too-many-requests',
        `An API key is limited to ${REQUESTS.refillPerS} requests a second.`,
        { retryAfterS: waitMs / 1_000 },
      )
    }
    authority.noteUse(apiKey)
    setCaller(response, apiKey, { kind: 'api-key', authority })
    response.locals.charge = (cost: number) => requests.charge(apiKey.id, cost)
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

/** Counts a request for more than one. */
export function chargeOf(response: Response): (cost: number) => void {
  return response.locals.charge
}

/** Requires the version header. Throws ServiceError 218 without it, 217 for another version. */
export const versionHeader: RequestHandler = (request, _response, next) => {
  const version = request.get('svc-version') ?? request.get('ngrok-version')
  if (version === undefined) throw new ServiceError(218, 'Send the header svc-version: 2.')
  if (version !== VERSION) {
    throw new ServiceError(217, `The version of this API is ${VERSION}.`)
  }
  next()
}
