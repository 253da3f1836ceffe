import { isIP } from 'node:net'
import express, { type Express, type RequestHandler, Router } from 'express'
import type { Clock } from '../../base/clock.ts'
import type { Logger } from '../../base/logger.ts'
import type { TrustedProxies } from '../../base/net/trusted-proxies.ts'
import { accessLog, forwardedClient, peerAddress, requestId } from '../../http/access-log.ts'
import { changeAudit, changeOf } from '../../http/change-audit.ts'
import { hostGuard, securityHeaders } from '../../http/host-guard.ts'
import { endJsonWithNewline } from '../../http/json-body.ts'
import { serveMetrics } from '../../http/metrics.ts'
import type { RequestGate } from '../../http/request-gate.ts'
import { storageView } from '../../store/storage-view.ts'
import type { GatewayDatabase } from '../records/gateway-database.ts'
import type { IdSource } from '../records/resource-id.ts'
import { batchRoutes, type Creatable } from './batch.ts'
import {
  type ApiKeyAuthDeps,
  apiKeyAuth,
  callerOf,
  keyScopeGuard,
  refuseForeign,
  versionHeader,
} from './common/caller.ts'
import {
  apiErrorBodies,
  apiErrorResponse,
  noSuchRoute,
  refusalCode,
} from './common/error-response.ts'
import { madeAs, type Resource, resourceRoutes } from './common/resource.ts'
import { ResourceLists } from './common/resource-lists.ts'
import { type ConsoleDeps, consoleRoutes, LIVE_PATHS } from './console/console.ts'
import { type GatewayMetricsDeps, gatewayMetrics } from './gateway-metrics.ts'
import { audit } from './resources/audit.ts'
import { type BotUsersDeps, botUsers } from './resources/bot-users.ts'
import {
  type ApiKeysDeps,
  apiKeys,
  type CredentialsDeps,
  credentials,
} from './resources/credentials.ts'
import { type DevicesDeps, devices } from './resources/devices.ts'
import { type EndpointsDeps, endpoints } from './resources/endpoints.ts'
import {
  type IpPoliciesDeps,
  type IpPolicyRulesDeps,
  ipPolicies,
  ipPolicyRules,
} from './resources/ip-policies.ts'
import { type NodesDeps, nodes, type ReadinessDeps, readinessRoute } from './resources/nodes.ts'
import {
  type ReservedAddrsDeps,
  type ReservedDomainsDeps,
  reservedAddrs,
  reservedDomains,
} from './resources/reserved-names.ts'
import { type ConnectedAgents, tunnelSessions, tunnels } from './resources/tunnel-sessions.ts'
import {
  events,
  type WebhookEndpointsDeps,
  webhookEndpoints,
} from './resources/webhook-endpoints.ts'

const CONFIRM = { action: 'storage.confirm', targetId: undefined }

/** `/storage`: state of the database, and confirmation of possible data loss. */
function storageRoutes(database: GatewayDatabase['database']): Router {
  const router = Router()
  router.get('/storage', gatewayOnly, (_request, response) => {
    response.json(storageView(database.report()))
  })
  router.post('/storage/confirm', gatewayOnly, async (_request, response) => {
    await changeOf(response).run(() => database.confirmLosses(), undefined, CONFIRM)
    response.json(storageView(database.report()))
  })
  return router
}

/** For data of the whole gateway. */
const gatewayOnly: RequestHandler = (_request, response, next) => {
  refuseForeign(callerOf(response), 'its files and figures')
  next()
}

/** `/openapi.json`. The document is loaded at the first request. */
function openApiRoutes(): Router {
  const router = Router()
  router.get('/openapi.json', async (_request, response) => {
    const { managementApiDocument } = await import('./openapi-document.ts')
    response.json(managementApiDocument())
  })
  return router
}

/** Parts for the resources, and access to the API. */
export interface ManagementApiDeps
  extends ApiKeyAuthDeps,
    ApiKeysDeps,
    BotUsersDeps,
    CredentialsDeps,
    DevicesDeps,
    EndpointsDeps,
    IpPoliciesDeps,
    IpPolicyRulesDeps,
    ReservedAddrsDeps,
    ReservedDomainsDeps,
    WebhookEndpointsDeps,
    NodesDeps,
    Pick<ReadinessDeps, 'certificates' | 'member'>,
    GatewayMetricsDeps {
  readonly sessions: ConnectedAgents & NodesDeps['sessions']
  readonly database: GatewayDatabase['database']
  readonly trail: GatewayDatabase['trail']
  readonly consoleSessions: ConsoleDeps['consoleSessions']
  readonly ids: IdSource
  /** Closed while another process takes over. */
  readonly gate: RequestGate
  /** Trusted proxies, which may name the client; undefined if there are none. */
  readonly proxies?: TrustedProxies | undefined
  /** Which host names belong to this API. */
  readonly serves: (hostname: string) => boolean
  readonly log: Logger
  readonly clock: Clock
}

/** True for these names, `localhost` and all addresses: DNS rebinding needs a foreign name. */
export function servedNames(names: readonly string[]): (hostname: string) => boolean {
  const own = new Set(['localhost', ...names.map((name) => name.toLowerCase())])
  return (hostname) => own.has(hostname) || isIP(hostname.replace(/^\[|\]$/g, '')) !== 0
}

/** The management API (spec 4.1 and 5), as the vendor's clients know it. */
export function createManagementApi(deps: ManagementApiDeps): Express {
  const { gate, ids, serves, log, clock, database, trail, proxies } = deps
  const app = express()
  app.disable('x-powered-by')
  app.disable('etag')
  endJsonWithNewline(app)
  app.set('case sensitive routing', true)
  app.use(requestId, securityHeaders)
  if (proxies) app.use(forwardedClient(proxies))
  const quiet = (path: string) => path === '/healthz' || path === '/readyz' || LIVE_PATHS.has(path)
  app.use(accessLog({ log, clock, clientOf: peerAddress, quiet }))
  app.use(hostGuard(serves, 'To allow it, add it to GATEWAY_API_HOSTS.'))
  app.get('/healthz', (_request, response) => {
    database.ping()
    response.json({ status: 'ok' })
  })
  app.get('/readyz', readinessRoute(deps))
  app.use(gate.handler)
  const lists = new ResourceLists(clock)
  const made: Creatable[] = []
  const routes = <Item extends { readonly id: string }>(resource: Resource<Item>) => {
    const { path, create } = resource
    const audited = (id: string, baseUrl: string) => madeAs(resource, id, baseUrl)
    made.push({ path, ...(create && { create }), madeAs: audited })
    return resourceRoutes(resource, lists)
  }
  const resources = [
    routes(reservedDomains(deps)),
    routes(reservedAddrs(deps)),
    routes(botUsers(deps, 'bot')),
    routes(botUsers(deps, 'service')),
    routes(credentials(deps)),
    routes(apiKeys(deps)),
    routes(endpoints(deps)),
    routes(tunnels(deps)),
    routes(tunnelSessions(deps)),
    routes(devices(deps)),
    routes(ipPolicies(deps)),
    routes(ipPolicyRules(deps)),
    routes(webhookEndpoints(deps)),
    routes(nodes(deps)),
    routes(events(deps.events)),
    routes(audit(trail)),
  ]
  const errorBody = apiErrorBodies(ids, log)
  const [noteChange, noteRefusal] = changeAudit({
    trail,
    clientOf: peerAddress,
    codeOf: refusalCode,
    clock,
  })
  app.use(consoleRoutes({ ...deps, lists, noteChange }, resources))
  // A scraper has a key, but no version header.
  app.get('/metrics', apiKeyAuth(deps), gatewayOnly, serveMetrics(gatewayMetrics(deps)))
  app.use(apiKeyAuth(deps), noteChange, versionHeader, keyScopeGuard, resources)
  app.use(batchRoutes({ resources: made, errorBody }), storageRoutes(database), openApiRoutes())
  app.use(noSuchRoute, noteRefusal, apiErrorResponse(errorBody))
  return app
}
