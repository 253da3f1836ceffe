import { isIP } from 'node:net'
import express, { type Express, type RequestHandler } from 'express'
import * as z from 'zod'
import type { Clock } from '../../base/clock.ts'
import type { Logger } from '../../base/logger.ts'
import type { TrustedProxies } from '../../base/net/trusted-proxies.ts'
import { accessLog, forwardedClient, peerAddress, requestId } from '../../http/access-log.ts'
import { changeAudit, changeOf } from '../../http/change-audit.ts'
import { methodNotAllowed } from '../../http/error-response.ts'
import { hostGuard, securityHeaders } from '../../http/host-guard.ts'
import { endJsonWithNewline } from '../../http/json-body.ts'
import { serveMetrics } from '../../http/metrics.ts'
import type { RequestGate } from '../../http/request-gate.ts'
import { mountRoutes, OpenApiView, type Route } from '../../http/routes.ts'
import { StorageView, storageView } from '../../store/storage-view.ts'
import type { GatewayDatabase } from '../gateway-database.ts'
import type { IdSource } from '../records/resource-id.ts'
import { audit } from '../resources/audit/routes.ts'
import { type BotUsersDeps, botUsers } from '../resources/bot-users/routes.ts'
import {
  type CertificateAuthoritiesDeps,
  certificateAuthorities,
} from '../resources/certificate-authorities/routes.ts'
import {
  type ApiKeyAuthDeps,
  apiKeyAuth,
  callerOf,
  keyScopeGuard,
  refuseForeign,
  versionHeader,
} from '../resources/common/caller.ts'
import {
  apiErrorBodies,
  apiErrorResponse,
  noSuchRoute,
  refusalCode,
} from '../resources/common/error-response.ts'
import { type AnyItem, type Resource, resourceRoutes } from '../resources/common/resource.ts'
import { ResourceLists } from '../resources/common/resource-lists.ts'
import {
  type ApiKeysDeps,
  apiKeys,
  type CredentialsDeps,
  credentials,
} from '../resources/credentials/routes.ts'
import { type DevicesDeps, devices } from '../resources/devices/routes.ts'
import { type EndpointsDeps, endpoints } from '../resources/endpoints/routes.ts'
import { type ErrorPagesDeps, errorPages } from '../resources/error-pages/routes.ts'
import { type InvitesResourceDeps, invites } from '../resources/invites/routes.ts'
import {
  type IpPoliciesDeps,
  type IpPolicyRulesDeps,
  ipPolicies,
  ipPolicyRules,
} from '../resources/ip-policies/routes.ts'
import {
  type NodesDeps,
  nodes,
  type ReadinessDeps,
  readinessRoute,
} from '../resources/nodes/routes.ts'
import {
  type NotificationChannelsDeps,
  notificationChannels,
} from '../resources/notifications/routes.ts'
import {
  type ReservedAddrsDeps,
  type ReservedDomainsDeps,
  reservedAddrs,
  reservedDomains,
} from '../resources/reserved-names/routes.ts'
import { type TlsCertificatesDeps, tlsCertificates } from '../resources/tls-certificates/routes.ts'
import {
  type ConnectedAgents,
  tunnelSessions,
  tunnels,
} from '../resources/tunnel-sessions/routes.ts'
import { type VaultSecretsDeps, vaultSecrets, vaults } from '../resources/vaults/routes.ts'
import {
  events,
  type WebhookEndpointsDeps,
  webhookEndpoints,
} from '../resources/webhooks/routes.ts'
import { batchRoute } from './batch.ts'
import { type ConsoleDeps, consoleRoutes, LIVE_PATHS } from './console/console.ts'
import { type GatewayMetricsDeps, gatewayMetrics } from './gateway-metrics.ts'

const CONFIRM = { action: 'storage.confirm', targetId: undefined }

/** `/storage`: state of the database, and confirmation of possible data loss. */
function storageRoutes(database: GatewayDatabase['database']): Route[] {
  return [
    {
      route: 'GET /storage',
      id: 'storage',
      summary: 'State of the database',
      about: 'State of the database.',
      answers: { 200: { means: 'The state.', schema: { Storage: StorageView } } },
      before: [gatewayOnly],
      handle: (_request, response) => {
        response.json(storageView(database.report()))
      },
    },
    {
      route: 'POST /storage/confirm',
      id: 'storage_confirm',
      summary: 'Acknowledge possible data loss after damage',
      answers: { 200: { means: 'The state now.', schema: { Storage: StorageView } } },
      before: [gatewayOnly],
      handle: async (_request, response) => {
        await changeOf(response).run(() => database.confirmLosses(), undefined, CONFIRM)
        response.json(storageView(database.report()))
      },
    },
  ]
}

/** For data of the whole gateway. */
const gatewayOnly: RequestHandler = (_request, response, next) => {
  refuseForeign(callerOf(response), 'metrics and storage')
  next()
}

/** `/openapi.json`. The document is made at the first request. */
function openApiRoute(routes: () => readonly Route[]): Route {
  return {
    route: 'GET /openapi.json',
    id: 'openapi',
    summary: 'OpenAPI document',
    about: 'This document.',
    answers: { 200: { means: 'OpenAPI 3.1.', schema: { OpenApi: OpenApiView } } },
    handle: async (_request, response) => {
      const { managementApiDocument } = await import('./openapi-document.ts')
      response.json(managementApiDocument(routes()))
    },
  }
}

/** A scraper has a key, but no version header. */
function metricsRoute(deps: ManagementApiDeps): Route {
  return {
    route: 'GET /metrics',
    id: 'metrics',
    summary: 'Metrics for Prometheus; svc-version is not required',
    answers: {
      200: {
        means: 'Prometheus text format, version 0.0.4.',
        schema: { Metrics: z.string() },
        mediaType: 'text/plain',
      },
    },
    before: [gatewayOnly],
    handle: serveMetrics(gatewayMetrics(deps)),
  }
}

const HealthView = z.strictObject({ status: z.literal('ok') })

function healthRoute(database: GatewayDatabase['database']): Route {
  return {
    route: 'GET /healthz',
    id: 'health',
    summary: 'Liveness: process and database work',
    about: 'Liveness check, without an API key.',
    answers: { 200: { means: 'Process and database work.', schema: { Health: HealthView } } },
    isOpen: true,
    handle: (_request, response) => {
      database.ping()
      response.json({ status: 'ok' } satisfies z.infer<typeof HealthView>)
    },
  }
}

/** Parts for the resources, and access to the API. */
export interface ManagementApiDeps
  extends ApiKeyAuthDeps,
    ApiKeysDeps,
    BotUsersDeps,
    CredentialsDeps,
    DevicesDeps,
    InvitesResourceDeps,
    EndpointsDeps,
    ErrorPagesDeps,
    IpPoliciesDeps,
    IpPolicyRulesDeps,
    ReservedAddrsDeps,
    ReservedDomainsDeps,
    VaultSecretsDeps,
    WebhookEndpointsDeps,
    NotificationChannelsDeps,
    TlsCertificatesDeps,
    CertificateAuthoritiesDeps,
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

/** All routes with an OpenAPI document, in its order. Each group is mounted behind its own checks. */
export function managementRoutes(deps: ManagementApiDeps, lists: ResourceLists) {
  const { database, ids, log } = deps
  const all: readonly Resource<AnyItem>[] = [
    reservedDomains(deps),
    tlsCertificates(deps),
    certificateAuthorities(deps),
    reservedAddrs(deps),
    botUsers(deps, 'bot'),
    botUsers(deps, 'service'),
    credentials(deps),
    apiKeys(deps),
    endpoints(deps),
    tunnels(deps),
    tunnelSessions(deps),
    devices(deps),
    invites(deps),
    nodes(deps),
    errorPages(deps),
    ipPolicies(deps),
    ipPolicyRules(deps),
    vaults(deps),
    vaultSecrets(deps),
    webhookEndpoints(deps),
    notificationChannels(deps),
    events(deps.events),
    audit(deps.trail),
  ]
  const batch = batchRoute({ resources: all, errorBody: apiErrorBodies(ids, log) })
  const routes: Record<'resources' | 'others' | 'metrics' | 'open', Route[]> = {
    resources: all.flatMap((resource) => resourceRoutes(resource, lists)),
    others: [batch, ...storageRoutes(database), openApiRoute(() => Object.values(routes).flat())],
    metrics: [metricsRoute(deps)],
    open: [healthRoute(database), readinessRoute(deps)],
  }
  return routes
}

/** The management API (spec 4.1 and 5), as the vendor's clients know it. */
export function createManagementApi(deps: ManagementApiDeps): Express {
  const { gate, ids, serves, log, clock, trail, proxies } = deps
  const lists = new ResourceLists(clock)
  const { resources, others, metrics, open } = managementRoutes(deps, lists)
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
  app.use(mountRoutes(open, methodNotAllowed), gate.handler)
  const [noteChange, noteRefusal] = changeAudit({
    trail,
    clientOf: peerAddress,
    codeOf: refusalCode,
    clock,
  })
  app.use(consoleRoutes({ ...deps, noteChange }, resources))
  app.use(apiKeyAuth(deps), mountRoutes(metrics, methodNotAllowed))
  app.use(noteChange, versionHeader, keyScopeGuard)
  app.use(mountRoutes([...resources, ...others], methodNotAllowed))
  app.use(noSuchRoute, noteRefusal, apiErrorResponse(apiErrorBodies(ids, log)))
  return app
}
