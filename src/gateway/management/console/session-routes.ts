import { type Request, Router } from 'express'
import * as z from 'zod'
import { AppError } from '../../../base/app-error.ts'
import { FailureLimiter } from '../../../base/limit/failure-limiter.ts'
import type { Logger } from '../../../base/logger.ts'
import { peerAddress } from '../../../http/client-address.ts'
import { jsonBody } from '../../../http/json-body.ts'
import { type AuditTrail, OK } from '../../../store/audit-trail.ts'
import type { ApiKey } from '../../records/api-key-store.ts'
import { ServiceError } from '../../records/service-error.ts'
import type { ClusterNode } from '../../site/cluster-node.ts'

import { parseBody } from '../body.ts'
import { actorFrom } from '../caller.ts'
import { keyOfSession, type SessionAuthDeps, sessionCookie } from './session-auth.ts'

const SessionCreate = z.strictObject({ api_key: z.string() })

export interface SessionRoutesDeps extends SessionAuthDeps {
  readonly trail: AuditTrail
  /** Undefined where there is one gateway. */
  readonly node?: ClusterNode | undefined
  readonly log: Logger
}

/** `/session`: who is signed in, signing in with an API key, signing out. */
export function sessionRoutes(deps: SessionRoutesDeps): Router {
  const { authority, clock, consoleSessions, log, node, trail } = deps
  const failures = new FailureLimiter(clock, () => node?.gateways ?? 1)
  const router = Router()
  router.get('/session', (request, response) => {
    const apiKey = keyOfSession(deps, request)
    response.json({ api_key: apiKey ? viewKey(apiKey) : null })
  })
  router.post('/session', jsonBody, async (request, response) => {
    const { api_key: token } = parseBody(SessionCreate, request.body)
    const apiKey = authenticate(token.trim(), peerAddress(request))
    authority.noteUse(apiKey)
    // What could not be closed everywhere ends by itself; this browser has it no more.
    await Promise.resolve(consoleSessions.close(sessionCookie.read(request))).catch(refusalOnly)
    sessionCookie.set(request, response, await consoleSessions.open(apiKey.id))
    log.info({ client: peerAddress(request), api_key: apiKey.id }, 'console session opened')
    await note('session.create', apiKey, request)
    response.status(201).json({ api_key: viewKey(apiKey) })
  })
  router.delete('/session', async (request, response) => {
    const apiKey = keyOfSession(deps, request)
    const id = sessionCookie.read(request)
    // A session that nobody here knows is asked for at PostgreSQL: strangers may not do that all day.
    if (!apiKey && id !== '') requireFew(peerAddress(request))
    sessionCookie.clear(request, response)
    await consoleSessions.close(id)
    if (apiKey) await note('session.delete', apiKey, request)
    response.status(204).end()
  })
  return router

  function note(action: string, apiKey: ApiKey, request: Request): Promise<void> {
    const actor = actorFrom('console', apiKey)
    return trail.note({ actor, client: peerAddress(request), action }, OK)
  }

  function authenticate(token: string, client: string): ApiKey {
    try {
      return authority.authenticateApiKey(token)
    } catch (error) {
      if (!(error instanceof ServiceError || error instanceof AppError)) throw error
      requireFew(client, error)
      log.warn({ client }, 'wrong API key at the console')
      throw error instanceof ServiceError && error.code === 202
        ? new ServiceError(202, 'This has not the form of an API key. Was it copied whole?')
        : error
    }
  }

  /** Throws AppError `too-many-requests`. */
  function requireFew(client: string, cause?: unknown): void {
    const waitMs = failures.take(client)
    if (waitMs <= 0) return
    const retryAfterS = waitMs / 1_000
    const sentence = `Too many wrong API keys. Try again in ${Math.ceil(retryAfterS)} s.`
    throw new AppError('too-many-requests', sentence, { retryAfterS, cause })
  }
}

function refusalOnly(error: unknown): void {
  if (!(error instanceof AppError)) throw error
}

function viewKey({ id, name, scope, isOwnerOnly }: ApiKey): object {
  return { id, name, scope, owner_only: isOwnerOnly }
}
