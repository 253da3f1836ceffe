import express, {
  type ErrorRequestHandler,
  type Express,
  type RequestHandler,
  Router,
} from 'express'
import * as z from 'zod'
import type { Agent } from '../agent/agent.ts'
import { PROBE_PATH } from '../agent/probes/self-probe.ts'
import { AppError } from '../base/app-error.ts'
import type { Clock } from '../base/clock.ts'
import type { Limiter } from '../base/limiter.ts'
import type { Logger, LogTail } from '../base/logger.ts'
import { accessLog, peerAddress, requestId } from '../http/access-log.ts'
import { bearerAuth, type Caller, keepCaller, scopeGuard } from '../http/caller.ts'
import { type ChangeTrail, changeAudit, changeOf } from '../http/change-audit.ts'
import { errorResponse, methodNotAllowed, noRoute, toAppError } from '../http/error-response.ts'
import { hostGuard, securityHeaders } from '../http/host-guard.ts'
import { endJsonWithNewline } from '../http/json-body.ts'
import { serveMetrics } from '../http/metrics.ts'
import { mountRoutes, OpenApiView, type Route } from '../http/routes.ts'
import type { Database } from '../store/database.ts'
import { StorageView, storageView } from '../store/storage-view.ts'
import { agentMetrics } from './agent-metrics.ts'
import type { ApiListener } from './api-listener.ts'
import type { ApiTokens } from './api-tokens.ts'
import { type AuditPages, auditRoute } from './audit.ts'
import { doctorRoute, type Examine } from './diagnosis/doctor.ts'
import { logRoute } from './diagnosis/log.ts'
import type { EventFeed } from './events/event-feed.ts'
import { eventRoute } from './events/events.ts'
import { healthRoute, readinessRoute } from './health.ts'
import type { OneTimeCodes } from './page/one-time-codes.ts'
import { isQuietOnPage, localPeersOnly, pageRoutes } from './page/page.ts'
import { pageCodeRoute } from './page/page-codes.ts'
import { servicesRoute } from './services.ts'
import { StatusView, statusView } from './status-view.ts'
import { tokenRoutes } from './tokens.ts'
import { trafficRoute } from './traffic.ts'
import { tunnelRoutes } from './tunnels.ts'
import type { OwnUpdate } from './update-view.ts'

const SAFE_METHODS = new Set(['GET', 'HEAD', 'OPTIONS'])
const RETRY_AFTER_S = 10

/**
 * Refuses changes while an update is on trial: a rollback also restores the data, so acknowledged changes
 * would be lost. AppError `storage-unavailable`.
 */
function trialGate(isOnTrial: () => boolean): RequestHandler {
  return ({ method }, _response, next) => {
    if (SAFE_METHODS.has(method) || !isOnTrial()) {
      next()
      return
    }
    const detail =
      'A new version of the agent is on trial. Changes are refused until the trial ends. Try again in a minute.'
    next(new AppError('storage-unavailable', detail, { retryAfterS: RETRY_AFTER_S }))
  }
}

const CONFIRM = { action: 'storage.confirm', targetId: undefined }

/** `/storage`: state of the database, and confirmation of possible data loss. */
function storageRoutes(database: Database): Route[] {
  return [
    {
      route: 'GET /storage',
      id: 'getStorage',
      summary: 'Get the state of the database',
      about: 'State of the database.',
      answers: {
        200: { means: 'Same as `storage` in the status.', schema: { Storage: StorageView } },
      },
      handle: (_request, response) => {
        response.json(storageView(database.report()))
      },
    },
    {
      route: 'POST /storage/confirm',
      id: 'confirmStorage',
      summary: 'Confirm possible data loss after database damage',
      answers: {
        200: {
          means: 'Confirmed. The status is healthy again unless there are other problems.',
          schema: { Storage: StorageView },
        },
      },
      handle: async (_request, response) => {
        await changeOf(response).run(() => database.confirmLosses(), undefined, CONFIRM)
        response.json(storageView(database.report()))
      },
    },
  ]
}

/** `/status`: how the device is. */
function statusRoute({ agent, database, update }: ApiOptions): Route {
  return {
    route: 'GET /status',
    id: 'getStatus',
    summary: 'Get the status of the device',
    about: 'Status of the device.',
    answers: { 200: { means: 'The complete status.', schema: { Status: StatusView } } },
    handle: (_request, response) => {
      agent.refreshServices()
      response.json(statusView(agent.status(), database.report(), update?.report()))
    },
  }
}

/** The agent's own question to itself through its public domain; needs no token, the nonce is one. */
function probeRoute(agent: Agent): Route {
  return {
    route: `GET ${PROBE_PATH}/{nonce}`,
    isInternal: true,
    handle: (request, response) => {
      const answer = agent.answerProbe(String(request.params.nonce))
      if (answer === undefined)
        throw new AppError('not-found', 'This path is only for the self-test of the agent.')
      response.type('text/plain').send(answer)
    },
  }
}

function metricsRoute(options: ApiOptions): Route {
  return {
    route: 'GET /metrics',
    id: 'getMetrics',
    summary: 'Prometheus metrics',
    answers: {
      200: {
        means: 'Text format, version 0.0.4.',
        schema: { Metrics: z.string() },
        mediaType: 'text/plain',
      },
    },
    handle: serveMetrics(agentMetrics(options)),
  }
}

/** `/openapi.json`. The document is made at the first request: few devices are asked for it. */
function openApiRoute(routes: () => readonly Route[]): Route {
  return {
    route: 'GET /openapi.json',
    id: 'getOpenApi',
    summary: 'Get this document',
    about: 'This document.',
    answers: { 200: { means: 'OpenAPI 3.1.', schema: { OpenApi: OpenApiView } } },
    handle: async (_request, response) => {
      const { agentApiDocument } = await import('./openapi-document.ts')
      response.json(agentApiDocument(routes()))
    },
  }
}

export interface ApiOptions {
  readonly agent: Agent
  readonly database: Database
  readonly tokens: ApiTokens
  readonly trail: ChangeTrail & AuditPages
  readonly feed: EventFeed
  /** Shared by the listeners, so that wrong tokens add up. */
  readonly failures: Limiter
  readonly codes: OneTimeCodes
  /** URLs of the page for browsers. */
  readonly pageUrls: () => readonly string[]
  readonly examine: Examine
  /** Update of an installed program, which may be on trial. */
  readonly update?: OwnUpdate | undefined
  readonly logTail: LogTail
  readonly log: Logger
  readonly clock: Clock
}

const REALM = 'device-agent'

/** All routes with an OpenAPI document, in its order. `open` needs no token; the page uses `shared`. */
export function agentRoutes(options: ApiOptions) {
  const { agent, database, tokens, trail, examine, logTail, clock } = options
  const routes: Record<'shared' | 'others' | 'open', Route[]> = {
    shared: [
      ...tunnelRoutes(agent),
      statusRoute(options),
      servicesRoute(agent, clock),
      trafficRoute(agent),
      doctorRoute(examine, () => clock.now()),
      logRoute(logTail),
      ...storageRoutes(database),
    ],
    others: [
      ...tokenRoutes(tokens),
      auditRoute(trail),
      eventRoute(options),
      metricsRoute(options),
      readinessRoute(agent, database),
      openApiRoute(() => Object.values(routes).flat()),
    ],
    open: [healthRoute(database)],
  }
  return routes
}

/** The agent's REST API for one listener, with the page if one is given. */
export function createApi(options: ApiOptions, listener: ApiListener, page?: Router): Express {
  const { agent, tokens, failures, log, codes, pageUrls } = options
  const { clientOf, caller } = listener
  const { shared, others, open } = agentRoutes(options)
  const app = createApp(options, listener)
  app.use(mountRoutes(open, methodNotAllowed), mountRoutes([probeRoute(agent)]))
  if (page) app.use(Router().use(localPeersOnly, page))
  const authenticate = (token: string) => tokens.authenticate(token)
  app.use(
    caller ? trust(caller) : bearerAuth({ realm: REALM, authenticate, failures, clientOf, log }),
  )
  const [noteChange, noteRefusal] = auditOf(options, listener)
  const ofSocket = caller ? [pageCodeRoute(codes, pageUrls)] : []
  app.use(noteChange, scopeGuard({ noun: 'token' }), ...trialGates(options))
  app.use(mountRoutes([...shared, ...others, ...ofSocket], methodNotAllowed))
  app.use(noRoute, noteRefusal, errorResponse(log))
  return app
}

/** The page of the device, for each listener that serves it. */
export function createPage(options: ApiOptions): Router {
  const audit = auditOf(options, { clientOf: peerAddress })
  const { shared } = agentRoutes(options)
  const resources = Router().use(...trialGates(options), mountRoutes(shared, methodNotAllowed))
  return pageRoutes({ ...options, resources, changeAudit: audit })
}

/** The page alone: nothing that takes a token of the API at each request. */
export function createPageApp(options: ApiOptions, listener: ApiListener, page: Router): Express {
  const app = createApp(options, listener)
  app.use(page, noRoute, errorResponse(options.log))
  return app
}

/** An app with the handlers that run before all routes. */
function createApp({ log, clock }: ApiOptions, listener: ApiListener): Express {
  const { serves, advice, clientOf } = listener
  const quiet = (path: string) =>
    path === '/healthz' || path === '/readyz' || path.startsWith(PROBE_PATH) || isQuietOnPage(path)
  const app = express()
  app.disable('x-powered-by')
  app.disable('etag')
  endJsonWithNewline(app)
  app.use(requestId, securityHeaders, accessLog({ log, clock, clientOf, quiet }))
  app.use(hostGuard(serves, advice))
  return app
}

function trialGates({ update }: ApiOptions): RequestHandler[] {
  return update ? [trialGate(() => update.isOnTrial())] : []
}

function auditOf(
  { trail, clock }: ApiOptions,
  { clientOf }: Pick<ApiListener, 'clientOf'>,
): [RequestHandler, ErrorRequestHandler] {
  return changeAudit({ trail, clientOf, codeOf: refusalCode, clock })
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
