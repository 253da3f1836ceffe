import { onTestFinished } from 'vitest'
import type { Clock } from '../../src/base/clock.ts'
import type { Secret } from '../../src/base/secret.ts'
import { CertificateAuthority } from '../../src/gateway/certificates/certificate-authority.ts'
import type { CertificateStatus } from '../../src/gateway/certificates/server-certificate.ts'
import type { ConnectedAgent } from '../../src/gateway/endpoints/endpoint.ts'
import {
  createManagementApi,
  type ManagementApiDeps,
  managementRoutes,
  servedNames,
} from '../../src/gateway/management/management-api.ts'
import { managementApiDocument } from '../../src/gateway/management/openapi-document.ts'
import { apiErrorFormat } from '../../src/gateway/resources/common/error-response.ts'
import { ResourceLists } from '../../src/gateway/resources/common/resource-lists.ts'
import { Invites } from '../../src/gateway/resources/invites/invites.ts'
import type { Mailer } from '../../src/gateway/resources/notifications/mailer.ts'
import { DnsCheck } from '../../src/gateway/resources/reserved-names/routes.ts'
import { HttpServer } from '../../src/http/http-server.ts'
import { BrowserSessions } from '../../src/http/pages/browser-sessions.ts'
import { RequestGate } from '../../src/http/request-gate.ts'
import type { PolicyReach } from '../../src/policy/outbound/outbound-allow.ts'
import { captureLog } from './captured-log.ts'
import { openGatewayStores } from './gateway-stores.ts'
import { OpenApiCheck } from './openapi-check.ts'

/** What happens to devices is written after this at the latest. */
const WRITTEN_MS = 200

/** Made with the first API: all have the same routes. */
let documented: OpenApiCheck | undefined

export interface ApiAnswer {
  readonly status: number
  readonly headers: Headers
  // biome-ignore lint/suspicious/noExplicitAny: a test looks into whatever was answered.
  readonly body: any
}

export interface CallOptions {
  readonly key?: Secret | string | null
  readonly body?: unknown
  readonly headers?: Record<string, string>
}

/**
 * The management API over real HTTP, on stores of its own and a clock that is moved by hand.
 * Each answer is held against the API's OpenAPI document.
 */
export async function startManagementApi({
  dnsServers,
  hosts = [],
  clock,
  hasAcme = false,
  mayDial,
  mailer,
}: {
  dnsServers?: string[]
  hosts?: string[]
  /** The API's own, in place of the one that the stores have. */
  clock?: Clock
  /** Domains may use an ACME authority. */
  hasAcme?: boolean
  /** Where webhooks may go. */
  mayDial?: NonNullable<PolicyReach['mayDial']>
  mailer?: Mailer
} = {}) {
  const stores = openGatewayStores(undefined, {
    hasAcme,
    ...(mayDial && { mayDial }),
    ...(mailer && { mailer }),
  })
  const captured = captureLog()
  const agents: ConnectedAgent[] = []
  const retried: string[] = []
  const status: { current: CertificateStatus } = {
    current: { renewsAt: undefined, job: undefined },
  }
  const { folder, log } = stores
  const authority = await CertificateAuthority.open({ folder, clock: stores.clock, log })
  const invites = new Invites({
    ...stores,
    caPem: () => authority.certPem,
    agentAddresses: () => ['gateway.test:4443'],
  })
  const deps: ManagementApiDeps = {
    ...stores,
    invites,
    gate: new RequestGate(),
    consoleSessions: new BrowserSessions(clock ?? stores.clock),
    certificates: { ownEndsAt: undefined },
    ...(clock && { clock }),
    sessions: {
      all: () => agents,
      find: (id) => agents.find((agent) => agent.id === id),
      get size() {
        return agents.length
      },
    },
    domainCertificates: {
      statusOf: () => status.current,
      retry: ({ domain }) => retried.push(domain),
      get failed() {
        return status.current.job?.error === undefined ? 0 : 1
      },
      expiring: 0,
    },
    version: '0.0.0-test',
    cnameBase: 'gateway.test',
    dnsCheck: new DnsCheck(dnsServers),
    serves: servedNames(hosts),
    log: captured.log,
  }
  const app = createManagementApi(deps)
  const routes = managementRoutes(deps, new ResourceLists(deps.clock))
  const document = managementApiDocument(Object.values(routes).flat())
  documented ??= new OpenApiCheck(document)
  const check = documented
  const server = new HttpServer({
    name: 'management API',
    listener: app,
    target: { host: '127.0.0.1', port: 0 },
    errors: apiErrorFormat(stores.ids, captured.log),
    log: captured.log,
  })
  await server.start()
  onTestFinished(() => server.stop(0))
  const key = (await stores.issuer.createApiKey({ description: 'test' })).token
  const baseUrl = `http://127.0.0.1:${server.port}`

  async function call(method: string, path: string, options: CallOptions = {}): Promise<ApiAnswer> {
    const token = options.key === undefined ? key : options.key
    const response = await fetch(`${baseUrl}${path}`, {
      method,
      headers: {
        ...(token === null
          ? {}
          : { authorization: `Bearer ${typeof token === 'string' ? token : token.reveal()}` }),
        'svc-version': '2',
        ...(options.body === undefined ? {} : { 'content-type': 'application/json' }),
        ...options.headers,
      },
      ...(options.body === undefined
        ? {}
        : { body: typeof options.body === 'string' ? options.body : JSON.stringify(options.body) }),
    })
    const { status, headers } = response
    const text = await response.text()
    const contentType = headers.get('content-type') ?? ''
    check.check({ method, path, status, contentType, text })
    return {
      status,
      headers,
      body: contentType.startsWith('application/json') ? JSON.parse(text) : text || undefined,
    }
  }

  /** A device comes, as far as the API can tell. */
  async function online(agent: ConnectedAgent): Promise<ConnectedAgent> {
    const { identity, id } = agent
    const session = { ...agent, identity: { ...identity, deviceId: identity.deviceId ?? id } }
    agents.push(session)
    stores.devices.came(session)
    await stores.clock.advance(WRITTEN_MS)
    return session
  }

  /** It has died. */
  async function offline(session: ConnectedAgent): Promise<void> {
    agents.splice(agents.indexOf(session), 1)
    const urls = session.endpoints().map(({ url }) => url)
    stores.devices.went(session, 'silent', urls)
    await stores.clock.advance(WRITTEN_MS)
  }

  return {
    ...stores,
    invites,
    app,
    document,
    agents,
    online,
    offline,
    retried,
    status,
    baseUrl,
    key,
    call,
    logText: captured.text,
  }
}
