import express, { type Express, type RequestHandler } from 'express'
import type { Agent } from '../agent/agent.ts'
import { PROBE_PATH } from '../agent/probes/self-probe.ts'
import type { Clock } from '../base/clock.ts'
import type { Limiter } from '../base/limit/limiter.ts'
import type { Logger } from '../base/logger.ts'
import { accessLog } from '../http/access-log.ts'
import { bearerAuth } from '../http/bearer-auth.ts'
import { type Caller, keepCaller } from '../http/caller.ts'
import { type ChangeTrail, changeAudit } from '../http/change-audit.ts'
import { errorResponse, toAppError } from '../http/error-response.ts'
import { hostGuard } from '../http/host-guard.ts'
import { noRoute } from '../http/no-route.ts'
import { requestId } from '../http/request-id.ts'
import { scopeGuard } from '../http/scope-guard.ts'
import { securityHeaders } from '../http/security-headers.ts'
import type { Database } from '../store/database.ts'
import type { ApiListener } from './api-listener.ts'
import type { ApiTokens } from './api-tokens.ts'
import { type AuditPages, auditRoutes } from './audit.ts'
import { healthRoutes, readinessRoutes } from './health.ts'
import { openApiRoutes } from './openapi.ts'
import { probeRoutes } from './probe.ts'
import { statusRoutes } from './status.ts'
import { storageRoutes } from './storage.ts'
import { tokenRoutes } from './tokens.ts'
import { tunnelRoutes } from './tunnels.ts'

export interface ApiOptions {
  readonly agent: Agent
  readonly database: Database
  readonly tokens: ApiTokens
  readonly trail: ChangeTrail & AuditPages
  /** Shared by the listeners, so that wrong tokens add up. */
  readonly failures: Limiter
  readonly listener: ApiListener
  readonly log: Logger
  readonly clock: Clock
}

const REALM = 'device-agent'

/** The agent's REST API as it is served at one listener. */
export function createApi({
  agent,
  database,
  tokens,
  trail,
  failures,
  listener,
  log,
  clock,
}: ApiOptions): Express {
  const { serves, advice, clientOf } = listener
  const quiet = (path: string) =>
    path === '/healthz' || path === '/readyz' || path.startsWith(PROBE_PATH)
  const app = express()
  app.disable('x-powered-by')
  app.disable('etag')
  app.use(requestId, securityHeaders, accessLog({ log, clock, clientOf, quiet }))
  app.use(hostGuard(serves, advice))
  app.use(healthRoutes(database), probeRoutes(agent))
  const authenticate = (token: string) => tokens.authenticate(token)
  const { caller } = listener
  app.use(
    caller ? trust(caller) : bearerAuth({ realm: REALM, authenticate, failures, clientOf, log }),
  )
  const [noteChange, noteRefusal] = changeAudit({
    trail,
    clientOf,
    codeOf: refusalCode,
    clock,
  })
  app.use(noteChange, scopeGuard({ noun: 'token' }))
  app.use(tunnelRoutes(agent), readinessRoutes(agent, database), statusRoutes(agent, database))
  app.use(tokenRoutes(tokens), auditRoutes(trail), storageRoutes(database), openApiRoutes())
  app.use(noRoute, noteRefusal, errorResponse(log))
  return app
}

/** A request to where nothing is served asks for no change. */
function refusalCode(error: unknown): string | undefined {
  const { code } = toAppError(error)
  return code === 'not-found' || code === 'method-not-allowed' ? undefined : code
}

function trust(caller: Caller): RequestHandler {
  return (_request, response, next) => {
    keepCaller(response, caller, () => {})
    next()
  }
}
