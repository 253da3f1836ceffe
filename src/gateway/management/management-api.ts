import { isIP } from 'node:net'
import express, { type Express } from 'express'
import type { Clock } from '../../base/clock.ts'
import type { Logger } from '../../base/logger.ts'
import type { TrustedProxies } from '../../base/net/trusted-proxies.ts'
import { accessLog } from '../../http/access-log.ts'
import { changeAudit } from '../../http/change-audit.ts'
import { forwardedClient, peerAddress } from '../../http/client-address.ts'
import { hostGuard } from '../../http/host-guard.ts'
import { endJsonWithNewline } from '../../http/json-lines.ts'
import type { RequestGate } from '../../http/request-gate.ts'
import { requestId } from '../../http/request-id.ts'
import { securityHeaders } from '../../http/security-headers.ts'
import { serveMetrics } from '../../http/serve-metrics.ts'
import type { GatewayDatabase } from '../records/gateway-database.ts'
import type { IdSource } from '../records/resource-id.ts'
import { type ApiKeyAuthDeps, apiKeyAuth, versionHeader } from './api-key-auth.ts'
import { type ApiKeysDeps, apiKeys } from './api-keys.ts'
import { audit } from './audit.ts'
import { type BotUsersDeps, botUsers } from './bot-users.ts'
import { keyScopeGuard } from './caller.ts'
import { consoleRoutes, LIVE_PATHS } from './console/console.ts'
import { type CredentialsDeps, credentials } from './credentials.ts'
import { type EndpointsDeps, endpoints } from './endpoints.ts'
import { apiErrorBodies, apiErrorResponse, noSuchRoute, refusalCode } from './error-response.ts'
import { batchRoutes, type Creatable } from './fleet/batch.ts'
import { type DevicesDeps, devices } from './fleet/devices.ts'
import { events } from './fleet/events.ts'
import { type GatewayMetricsDeps, gatewayMetrics } from './fleet/gateway-metrics.ts'
import { type WebhookEndpointsDeps, webhookEndpoints } from './fleet/webhook-endpoints.ts'
import { type IpPoliciesDeps, ipPolicies } from './ip-policies.ts'
import { type IpPolicyRulesDeps, ipPolicyRules } from './ip-policy-rules.ts'
import { type NodesDeps, nodes } from './nodes/nodes.ts'
import { type ReadinessDeps, readinessRoute } from './nodes/readiness.ts'
import { openApiRoutes } from './openapi.ts'
import { type ReservedAddrsDeps, reservedAddrs } from './reserved/reserved-addrs.ts'
import { type ReservedDomainsDeps, reservedDomains } from './reserved/reserved-domains.ts'
import { madeAs, type Resource, resourceRoutes } from './resource.ts'
import { ResourceLists } from './resource-lists.ts'
import { gatewayOnly, storageRoutes } from './storage.ts'
import { type ConnectedAgents, tunnelSessions } from './tunnel-sessions.ts'
import { tunnels } from './tunnels.ts'

/** What the resources work with, and how the API is reached. */
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
    Pick<ReadinessDeps, 'certificates'>,
    GatewayMetricsDeps {
  readonly sessions: ConnectedAgents & NodesDeps['sessions']
  readonly database: GatewayDatabase['database']
  readonly trail: GatewayDatabase['trail']
  readonly consoleSessionStore: GatewayDatabase['consoleSessionStore']
  readonly ids: IdSource
  /** Closed while another process takes over. */
  readonly gate: RequestGate
  /** Those in front, which may name the client; undefined where none is trusted. */
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
  // Who scrapes has a key, and no header of ours.
  app.get('/metrics', apiKeyAuth(deps), gatewayOnly, serveMetrics(gatewayMetrics(deps)))
  app.use(apiKeyAuth(deps), noteChange, versionHeader, keyScopeGuard, resources)
  app.use(batchRoutes({ resources: made, errorBody }), storageRoutes(database), openApiRoutes())
  app.use(noSuchRoute, noteRefusal, apiErrorResponse(errorBody))
  return app
}
