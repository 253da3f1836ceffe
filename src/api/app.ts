import express, { type Express } from 'express'
import type { Agent } from '../agent/agent.ts'
import { PROBE_PATH } from '../agent/probes/self-probe.ts'
import type { Clock } from '../base/clock.ts'
import type { Limiter } from '../base/limit/limiter.ts'
import type { Logger } from '../base/logger.ts'
import { accessLog } from '../http/access-log.ts'
import { bearerAuth } from '../http/bearer-auth.ts'
import { errorResponse } from '../http/error-response.ts'
import { hostGuard } from '../http/host-guard.ts'
import { noRoute } from '../http/no-route.ts'
import { requestId } from '../http/request-id.ts'
import { securityHeaders } from '../http/security-headers.ts'
import type { Database } from '../store/database.ts'
import type { ApiListener } from './api-listener.ts'
import type { ApiToken } from './api-token.ts'
import { healthRoutes, readinessRoutes } from './health.ts'
import { openApiRoutes } from './openapi.ts'
import { probeRoutes } from './probe.ts'
import { statusRoutes } from './status.ts'
import { tunnelRoutes } from './tunnels.ts'

export interface ApiOptions {
  readonly agent: Agent
  readonly database: Database
  readonly token: ApiToken
  /** Shared by the listeners, so that wrong tokens add up. */
  readonly failures: Limiter
  readonly listener: ApiListener
  readonly log: Logger
  readonly clock: Clock
}

/** The agent's REST API as it is served at one listener. */
export function createApi({
  agent,
  database,
  token,
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
  app.use(bearerAuth({ realm: 'device-agent', isValid: token.isValid, failures, clientOf, log }))
  app.use(tunnelRoutes(agent), readinessRoutes(agent, database), statusRoutes(agent, database))
  app.use(openApiRoutes())
  app.use(noRoute, errorResponse(log))
  return app
}
