import express, {
  type ErrorRequestHandler,
  type Express,
  type RequestHandler,
  Router,
} from 'express'
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
import { metricsRoutes } from '../http/metrics.ts'
import type { Database } from '../store/database.ts'
import { storageView } from '../store/storage-view.ts'
import { agentMetrics } from './agent-metrics.ts'
import type { ApiListener } from './api-listener.ts'
import type { ApiTokens } from './api-tokens.ts'
import { type AuditPages, auditRoutes } from './audit.ts'
import { doctorRoutes, type Examine } from './diagnosis/doctor.ts'
import { logRoutes } from './diagnosis/log.ts'
import type { EventFeed } from './events/event-feed.ts'
import { eventRoutes } from './events/events.ts'
import { healthRoutes, readinessRoutes } from './health.ts'
import { inspectRoutes } from './inspection/inspect.ts'
import { openApiRoutes } from './openapi.ts'
import type { OneTimeCodes } from './page/one-time-codes.ts'
import { isQuietOnPage, localPeersOnly, pageRoutes } from './page/page.ts'
import { pageCodeRoutes } from './page/page-codes.ts'
import { statusView } from './status-view.ts'
import { tokenRoutes } from './tokens.ts'
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
function storageRoutes(database: Database): Router {
  const router = Router()
  router
    .route('/storage')
    .get((_request, response) => {
      response.json(storageView(database.report()))
    })
    .all(methodNotAllowed('GET', 'HEAD'))
  router
    .route('/storage/confirm')
    .post(async (_request, response) => {
      await changeOf(response).run(() => database.confirmLosses(), undefined, CONFIRM)
      response.json(storageView(database.report()))
    })
    .all(methodNotAllowed('POST'))
  return router
}

/** `/status`: how the device is. */
function statusRoutes(agent: Agent, database: Database, update?: OwnUpdate): Router {
  const router = Router()
  router
    .route('/status')
    .get((_request, response) => {
      response.json(statusView(agent.status(), database.report(), update?.report()))
    })
    .all(methodNotAllowed('GET', 'HEAD'))
  return router
}

/** The agent's own question to itself through its public domain; needs no token, the nonce is one. */
function probeRoutes(agent: Agent): Router {
  const router = Router()
  router.get(`${PROBE_PATH}/:nonce`, (request, response) => {
    const answer = agent.answerProbe(request.params.nonce)
    if (answer === undefined)
      throw new AppError('not-found', 'This path is only for the self-test of the agent.')
    response.type('text/plain').send(answer)
  })
  return router
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

/** The agent's REST API for one listener, with the page if one is given. */
export function createApi(options: ApiOptions, listener: ApiListener, page?: Router): Express {
  const { agent, database, tokens, trail, failures, log } = options
  const { clientOf, caller } = listener
  const app = createApp(options, listener)
  app.use(healthRoutes(database), probeRoutes(agent))
  if (page) app.use(Router().use(localPeersOnly, page))
  const authenticate = (token: string) => tokens.authenticate(token)
  app.use(
    caller ? trust(caller) : bearerAuth({ realm: REALM, authenticate, failures, clientOf, log }),
  )
  const [noteChange, noteRefusal] = auditOf(options, listener)
  app.use(noteChange, scopeGuard({ noun: 'token' }), ...resources(options))
  app.use(readinessRoutes(agent, database), tokenRoutes(tokens), auditRoutes(trail))
  app.use(eventRoutes(options), metricsRoutes(agentMetrics(options)))
  app.use(openApiRoutes())
  if (caller) app.use(pageCodeRoutes(options.codes, options.pageUrls))
  app.use(noRoute, noteRefusal, errorResponse(log))
  return app
}

/** The page of the device, for each listener that serves it. */
export function createPage(options: ApiOptions): Router {
  const audit = auditOf(options, { clientOf: peerAddress })
  return pageRoutes({ ...options, resources: resources(options), changeAudit: audit })
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

/** The routes that the page also uses. */
function resources(options: ApiOptions): RequestHandler[] {
  const { agent, database, examine, update, logTail, clock } = options
  return [
    ...(update ? [trialGate(() => update.isOnTrial())] : []),
    tunnelRoutes(agent),
    inspectRoutes(agent),
    statusRoutes(agent, database, update),
    storageRoutes(database),
    doctorRoutes(examine, () => clock.now()),
    logRoutes(logTail),
  ]
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
