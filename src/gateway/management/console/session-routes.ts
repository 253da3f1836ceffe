import type { Request, RequestHandler, Response } from 'express'
import * as z from 'zod'
import { AppError } from '../../../base/app-error.ts'
import type { Clock } from '../../../base/clock.ts'
import { FailureLimiter, SlidingLog } from '../../../base/limiter.ts'
import type { Logger } from '../../../base/logger.ts'
import { peerAddress } from '../../../http/access-log.ts'
import { jsonBody } from '../../../http/json-body.ts'
import { type BrowserSessions, SessionCookie } from '../../../http/pages/browser-sessions.ts'
import type { Route } from '../../../http/routes.ts'
import { type AuditTrail, OK } from '../../../store/audit-trail.ts'
import type { Authority } from '../../access/authority.ts'
import type { OtherGateways } from '../../ports/other-gateways.ts'
import type { ApiKey } from '../../records/api-key-store.ts'
import { ServiceError } from '../../records/service-error.ts'
import { actorFrom, setCaller } from '../../resources/common/caller.ts'
import { parseBody } from '../../resources/common/request.ts'

/** A page that shows live figures asks all the time, so a session may do more than a program. */
const REQUESTS_PER_MINUTE = 600
const MINUTE_MS = 60_000
/** Header of requests that the page repeats without a user. */
const BACKGROUND_HEADER = 'x-background'

const sessionCookie = new SessionCookie({ name: 'console_session', path: '/console' })

export interface SessionAuthDeps {
  readonly consoleSessions: BrowserSessions
  readonly authority: Authority
  readonly clock: Clock
}

/**
 * The API key of the session that a request belongs to, while it is good. The session acts as that
 * key: with the key, or with the key's owner, it ends.
 */
function keyOfSession(
  { consoleSessions, authority }: SessionAuthDeps,
  request: Request,
): ApiKey | undefined {
  const id = sessionCookie.read(request)
  const isUse = request.get(BACKGROUND_HEADER) === undefined
  const session = consoleSessions.find(id, { isUse })
  if (!session) return undefined
  try {
    const apiKey = authority.currentApiKey(session.holder)
    if (isUse) authority.noteUse(apiKey)
    return apiKey
  } catch (error) {
    if (!(error instanceof ServiceError || error instanceof AppError)) throw error
    // The key is invalid everywhere, so no other gateway needs to know.
    consoleSessions.close(id).catch(() => {})
    return undefined
  }
}

/** Lets requests of a session pass. Throws AppError `unauthenticated` or `too-many-requests`. */
export function sessionAuth(deps: SessionAuthDeps): RequestHandler {
  const requests = new SlidingLog({
    capacity: REQUESTS_PER_MINUTE,
    windowMs: MINUTE_MS,
    clock: deps.clock,
  })
  return (request, response, next) => {
    const apiKey = keyOfSession(deps, request)
    if (!apiKey) throw new AppError('unauthenticated', 'The session has ended. Sign in again.')
    const waitMs = requests.tryCount(apiKey.id)
    if (waitMs > 0) {
      throw new AppError(
        'too-many-requests',
        'Too many requests from the console. It continues shortly.',
        {
          retryAfterS: waitMs / 1_000,
        },
      )
    }
    setCaller(response, apiKey, { kind: 'console', authority: deps.authority })
    next()
  }
}

/** An unknown session may belong to another gateway, which learns of it through PostgreSQL. */
const TOO_MANY_ENDED =
  'This browser is signed out. Too many unknown sessions were ended at this gateway, so the session ' +
  'may stay valid at other gateways until it expires.'

const SessionCreate = z.strictObject({ api_key: z.string() })

export interface SessionRoutesDeps extends SessionAuthDeps {
  readonly trail: AuditTrail
  readonly others: OtherGateways
  readonly log: Logger
}

/** `/session`: shows the session, signs in with an API key, and signs out. */
export function sessionRoutes(deps: SessionRoutesDeps): Route[] {
  const { authority, clock, consoleSessions, log, others, trail } = deps
  const gateways = () => others.count
  const failures = new FailureLimiter(clock, gateways)
  const strangeEnds = new FailureLimiter(clock, gateways)
  return [
    {
      route: 'GET /session',
      isInternal: true,
      handle: (request, response) => {
        const apiKey = keyOfSession(deps, request)
        response.json({ api_key: apiKey ? viewKey(apiKey) : null })
      },
    },
    { route: 'POST /session', isInternal: true, before: [jsonBody], handle: signIn },
    { route: 'DELETE /session', isInternal: true, handle: signOut },
  ]

  async function signIn(request: Request, response: Response): Promise<void> {
    const { api_key: token } = parseBody(SessionCreate, request.body)
    const apiKey = authenticate(token.trim(), request)
    authority.noteUse(apiKey)
    // A session that could not be closed everywhere expires. This browser no longer has it.
    await consoleSessions.close(sessionCookie.read(request)).catch(refusalOnly)
    sessionCookie.set(request, response, await consoleSessions.open(apiKey.id))
    log.info({ client: peerAddress(request), api_key: apiKey.id }, 'console session opened')
    await note('session.create', apiKey, request)
    response.status(201).json({ api_key: viewKey(apiKey) })
  }

  async function signOut(request: Request, response: Response): Promise<void> {
    const apiKey = keyOfSession(deps, request)
    const id = sessionCookie.read(request)
    sessionCookie.clear(request, response)
    // Unknown sessions need a query of PostgreSQL. The limit protects it against strangers.
    if (consoleSessions.isShared && !apiKey && id !== '')
      requireFew(strangeEnds, request, () => TOO_MANY_ENDED)
    await consoleSessions.close(id)
    if (apiKey) await note('session.delete', apiKey, request)
    response.status(204).end()
  }

  function note(action: string, apiKey: ApiKey, request: Request): Promise<void> {
    const actor = actorFrom('console', apiKey)
    return trail.note({ actor, client: peerAddress(request), action }, OK)
  }

  function authenticate(token: string, request: Request): ApiKey {
    try {
      return authority.authenticateApiKey(token)
    } catch (error) {
      if (!(error instanceof ServiceError || error instanceof AppError)) throw error
      const sentence = (seconds: number) => `Too many wrong API keys. Try again in ${seconds} s.`
      requireFew(failures, request, sentence, error)
      log.warn({ client: peerAddress(request) }, 'wrong API key at the console')
      throw error
    }
  }
}

/** Throws AppError `too-many-requests`. */
function requireFew(
  limiter: FailureLimiter,
  request: Request,
  sentence: (seconds: number) => string,
  cause?: unknown,
): void {
  const waitMs = limiter.tryCount(peerAddress(request))
  if (waitMs <= 0) return
  const retryAfterS = waitMs / 1_000
  throw new AppError('too-many-requests', sentence(Math.ceil(retryAfterS)), { retryAfterS, cause })
}

function refusalOnly(error: unknown): void {
  if (!(error instanceof AppError)) throw error
}

function viewKey({ id, name, scope, isOwnerOnly }: ApiKey): object {
  return { id, name, scope, owner_only: isOwnerOnly }
}
