import type { Request, RequestHandler, Response } from 'express'
import { AppError } from '../../../base/app-error.ts'
import type { Actor } from '../../../base/audit.ts'
import type { Clock } from '../../../base/clock.ts'
import { FailureLimiter, TokenBuckets } from '../../../base/limiter.ts'
import type { Logger } from '../../../base/logger.ts'
import { peerAddress } from '../../../http/access-log.ts'
import {
  callerOf as anyCallerOf,
  type Caller as HttpCaller,
  keepCaller,
  scopeGuard,
} from '../../../http/caller.ts'
import type { Authority } from '../../access/authority.ts'
import type { OtherGateways } from '../../ports/other-gateways.ts'
import type { ApiKey } from '../../records/api-key-store.ts'
import { ServiceError } from '../../records/service-error.ts'

/** Requests of one API key. */
export const REQUESTS = { capacity: 300, refillPerS: 80, maxKeys: 1_000 }
const VERSION = '2'
const BEARER = /^Bearer +(\S+) *$/i

export interface ApiKeyAuthDeps {
  readonly authority: Authority
  readonly others: OtherGateways
  readonly log: Logger
  readonly clock: Clock
}

/**
 * Lets requests with a valid API key pass, for each key 300 at once and then 80 a second. Throws ServiceError 200, 202,
 * 203, 206, 208 or 636, and AppError `unauthenticated` or `too-many-requests`.
 */
export function apiKeyAuth({ authority, others, log, clock }: ApiKeyAuthDeps): RequestHandler {
  const requests = new TokenBuckets({ ...REQUESTS, clock })
  const failures = new FailureLimiter(clock, () => others.count)
  return (request, response, next) => {
    const apiKey = authenticate(request)
    const waitMs = requests.tryCount(apiKey.id)
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
      const [, token] = BEARER.exec(header) ?? []
      if (token !== undefined) return authority.authenticateApiKey(token)
      throw new ServiceError(202, 'The authorization header must have the form Bearer <API key>.')
    } catch (error) {
      const client = peerAddress(request)
      const waitMs = failures.tryCount(client)
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

const NO_MORE = 'ERR_GATEWAY_KEY_SCOPE'

/** Takes changes from keys with the scope `write` only. */
export const keyScopeGuard = scopeGuard({ noun: 'API key', serviceCode: NO_MORE })

/** Caller of a request: an API key, directly or through a session of the console. */
export interface Caller
  extends HttpCaller,
    Pick<ApiKey, 'id' | 'name' | 'ownerId' | 'isOwnerOnly' | 'expiresAt'> {}

/** An API key as the audit trail names it. */
export function actorFrom(kind: Actor['kind'], { id, name }: ApiKey): Actor {
  return { kind, id, name: name || id }
}

/** Stores the caller for all later handlers. */
export function setCaller(
  response: Response,
  apiKey: ApiKey,
  { kind, authority }: { kind: Actor['kind']; authority: Authority },
): void {
  const { id, name, ownerId, scope, isOwnerOnly, expiresAt } = apiKey
  const actor = actorFrom(kind, apiKey)
  const caller = { actor, id, name, ownerId, scope, isOwnerOnly, expiresAt }
  keepCaller<Caller>(response, caller, () => {
    const now = authority.currentApiKey(id)
    if (now.scope === scope && now.isOwnerOnly === isOwnerOnly) return
    throw new AppError(
      'forbidden',
      `The API key "${name}" was changed during the request. Try again.`,
      {
        serviceCode: NO_MORE,
      },
    )
  })
}

/** The caller of the request of `response`. Use after authentication. */
export const callerOf: (response: Response) => Caller = anyCallerOf<Caller>

/** The accounts that a caller can see. */
export type Viewer = Pick<Caller, 'ownerId' | 'isOwnerOnly'>

/** Whether the caller can see items of an account. */
export function sees(caller: Viewer, ownerId: string | null): boolean {
  return !caller.isOwnerOnly || caller.ownerId === ownerId
}

/** Owner of the caller's new item; `asked` is the requested owner. Throws AppError `forbidden`. */
export function ownerFor(caller: Caller, asked: string | null | undefined): string | null {
  const ownerId = asked && renamed(asked, 'bot')
  if (!caller.isOwnerOnly) return ownerId ?? null
  if (ownerId !== undefined && ownerId !== caller.ownerId)
    throw ownerOnly(caller, 'to resources of its owner')
  return caller.ownerId
}

/** Throws AppError `forbidden` for a key that is good for its owner alone. */
export function refuseOwnerOnly(caller: Caller, what: string): void {
  if (caller.isOwnerOnly) throw ownerOnly(caller, `to resources of its owner: ${what}`)
}

/** For items of the gateway's owner. */
export const ownedByGateway = (): null => null

/** Throws AppError `forbidden` for a key that is good for another owner than the gateway's alone. */
export function refuseForeign(caller: Caller, what: string): void {
  if (!sees(caller, null)) refuseOwnerOnly(caller, `${what} are for the gateway's owner`)
}

/**
 * Checks that a new or changed key has no more rights than the caller's key: the same owner if the caller is
 * limited to its owner, and no later end. Throws AppError `forbidden`.
 */
export function checkNoMore(
  caller: Caller,
  { isOwnerOnly, expiresAt }: Pick<ApiKey, 'isOwnerOnly' | 'expiresAt'>,
): void {
  if (!isOwnerOnly) refuseOwnerOnly(caller, 'it can only create keys with the same limit')
  if (caller.expiresAt === null || (expiresAt !== null && expiresAt <= caller.expiresAt)) return
  throw new AppError(
    'forbidden',
    `The API key "${caller.name}" expires on ${new Date(caller.expiresAt).toISOString()}. Set expires_at to this time or earlier.`,
    { serviceCode: NO_MORE },
  )
}

function ownerOnly({ name }: Caller, reason: string): AppError {
  return new AppError('forbidden', `The API key "${name}" is limited ${reason}.`, {
    serviceCode: 'ERR_GATEWAY_KEY_OWNER',
  })
}

/** The same KSUID under another prefix. */
export function renamed(id: string, prefix: 'bot' | 'service'): string {
  return id.replace(/^(bot|service)_/, `${prefix}_`)
}
