import * as z from 'zod'
import { TunnelBody } from '../agent/tunnel.ts'
import { PROBLEM_TYPE, ProblemDetails } from '../http/error-response.ts'
import {
  type ApiDescription,
  type OpenApiDocument,
  type Operation,
  openApiDocument,
} from '../http/openapi.ts'
import { StorageView } from '../store/storage-view.ts'
import { AuditListQuery, AuditPage } from './audit.ts'
import { ExaminationView } from './diagnosis/doctor.ts'
import { LogQuery, LogView } from './diagnosis/log.ts'
import { EventsQuery } from './events/events.ts'
import { HealthView, ReadinessView } from './health.ts'
import { ExchangeView } from './inspection/exchange-view.ts'
import { InspectionRequest, InspectionView } from './inspection/inspect.ts'
import { StatusView } from './status-view.ts'
import { NewTokenView, TokenRequest, TokenRotation, TokenView } from './token-view.ts'
import { TunnelSetBody, TunnelSetView } from './tunnel-set-view.ts'
import { TunnelSpecView, TunnelStatusView, TunnelView } from './tunnel-view.ts'
import { ListQuery, SetQuery } from './tunnels.ts'

/** All operations, in the order of the document. */
const OPERATIONS: readonly Operation[] = [
  {
    id: 'listTunnels',
    summary: 'List tunnels, oldest first',
    method: 'get',
    path: '/tunnels',
    query: ListQuery,
    hasEtag: true,
    answers: {
      200: { means: 'The tunnels; with view=status, including their status.', schema: 'Tunnels' },
    },
  },
  {
    id: 'createTunnel',
    summary: 'Create a tunnel',
    description:
      'Stores the tunnel, opens it and responds with the outcome. A tunnel that the service refuses is deleted. Without a policy, the default policy of the device applies.',
    method: 'post',
    path: '/tunnels',
    obeysConditions: true,
    body: 'TunnelSpec',
    answers: {
      200: { means: 'The tunnel is stored and online.', schema: 'Tunnel' },
      202: { means: 'The tunnel is stored and opens when the link is back.', schema: 'Tunnel' },
    },
  },
  {
    id: 'replaceTunnels',
    summary: 'Replace all tunnels of the device',
    description:
      'Creates, replaces and deletes tunnels in one write. If the device refuses one tunnel, nothing changes. A tunnel that the service refuses is kept, shown as refused, and retried.',
    method: 'put',
    path: '/tunnels',
    query: SetQuery,
    obeysConditions: true,
    body: 'TunnelSet',
    answers: {
      200: {
        means: 'All tunnels are stored and online, or the request was a dry run.',
        schema: 'SetOutcome',
      },
      202: {
        means: 'All tunnels are stored; some are not online yet or were refused.',
        schema: 'SetOutcome',
      },
    },
  },
  {
    id: 'getTunnel',
    summary: 'Get a tunnel and its status',
    method: 'get',
    path: '/tunnels/{url_part}',
    hasEtag: true,
    answers: { 200: { means: 'The tunnel.', schema: 'TunnelStatus' } },
  },
  {
    id: 'replaceTunnel',
    summary: 'Create or replace a tunnel',
    method: 'put',
    path: '/tunnels/{url_part}',
    body: 'TunnelReplacement',
    obeysConditions: true,
    answers: {
      200: { means: 'The tunnel was replaced.', schema: 'Tunnel' },
      201: { means: 'The tunnel was created.', schema: 'Tunnel' },
      202: { means: 'The tunnel is stored and opens when the link is back.', schema: 'Tunnel' },
    },
  },
  {
    id: 'deleteTunnel',
    summary: 'Close and delete a tunnel',
    method: 'delete',
    path: '/tunnels/{url_part}',
    obeysConditions: true,
    answers: { 204: { means: 'The tunnel is closed and deleted.' } },
  },
  {
    id: 'getInspection',
    summary: 'Get the inspection of a tunnel',
    method: 'get',
    path: '/tunnels/{url_part}/inspect',
    answers: {
      200: { means: 'State of the inspection and the latest exchanges.', schema: 'Inspection' },
    },
  },
  {
    id: 'startInspection',
    summary: 'Start or extend an inspection',
    method: 'put',
    path: '/tunnels/{url_part}/inspect',
    body: 'InspectionRequest',
    answers: { 200: { means: 'The inspection is started or extended.', schema: 'Inspection' } },
  },
  {
    id: 'endInspection',
    summary: 'End an inspection and delete its exchanges',
    method: 'delete',
    path: '/tunnels/{url_part}/inspect',
    answers: { 204: { means: 'The inspection has ended.' } },
  },
  {
    id: 'getExchange',
    summary: 'Get an exchange with headers and bodies',
    method: 'get',
    path: '/tunnels/{url_part}/inspect/{number}',
    answers: { 200: { means: 'The exchange.', schema: 'Exchange' } },
  },
  {
    id: 'replayExchange',
    summary: 'Send a recorded request to the upstream again',
    method: 'post',
    path: '/tunnels/{url_part}/inspect/{number}/replay',
    answers: { 200: { means: 'The new exchange.', schema: 'Exchange' } },
  },
  {
    id: 'listTokens',
    summary: 'List API tokens, oldest first',
    method: 'get',
    path: '/tokens',
    answers: { 200: { means: 'The tokens, without their secrets.', schema: 'Tokens' } },
  },
  {
    id: 'createToken',
    summary: 'Create a token',
    method: 'post',
    path: '/tokens',
    body: 'TokenRequest',
    answers: {
      201: { means: 'The token with its secret, which is not shown again.', schema: 'NewToken' },
    },
  },
  {
    id: 'getToken',
    summary: 'Get a token by id or name',
    method: 'get',
    path: '/tokens/{id}',
    answers: { 200: { means: 'The token.', schema: 'Token' } },
  },
  {
    id: 'rotateToken',
    summary: 'Rotate the secret of a token',
    method: 'post',
    path: '/tokens/{id}/rotate',
    body: 'TokenRotation',
    hasOptionalBody: true,
    answers: {
      200: {
        means: 'The token with its new secret, which is not shown again.',
        schema: 'NewToken',
      },
    },
  },
  {
    id: 'revokeToken',
    summary: 'Revoke a token',
    method: 'delete',
    path: '/tokens/{id}',
    answers: { 204: { means: 'The token is revoked.' } },
  },
  {
    id: 'listAudit',
    summary: 'List audit entries, newest first',
    method: 'get',
    path: '/audit',
    query: AuditListQuery,
    answers: { 200: { means: 'A page of the audit trail.', schema: 'AuditPage' } },
  },
  {
    id: 'listEvents',
    summary: 'Stream changes of tunnels, link, storage and policy',
    method: 'get',
    path: '/events',
    query: EventsQuery,
    answers: {
      200: {
        means: 'Endless stream of server-sent events.',
        schema: 'Events',
        mediaType: 'text/event-stream',
      },
    },
  },
  {
    id: 'getMetrics',
    summary: 'Prometheus metrics',
    method: 'get',
    path: '/metrics',
    answers: {
      200: { means: 'Text format, version 0.0.4.', schema: 'Metrics', mediaType: 'text/plain' },
    },
  },
  {
    id: 'getStatus',
    summary: 'Get the status of the device',
    method: 'get',
    path: '/status',
    answers: { 200: { means: 'The complete status.', schema: 'Status' } },
  },
  {
    id: 'examine',
    summary: 'Check settings, network, service and tunnels, and suggest fixes',
    method: 'get',
    path: '/doctor',
    answers: { 200: { means: 'Results in order.', schema: 'Examination' } },
  },
  {
    id: 'getLog',
    summary: 'Get the latest log lines',
    method: 'get',
    path: '/log',
    query: LogQuery,
    answers: { 200: { means: 'Lines, oldest first.', schema: 'Log' } },
  },
  {
    id: 'getStorage',
    summary: 'Get the state of the database',
    method: 'get',
    path: '/storage',
    answers: { 200: { means: 'Same as `storage` in the status.', schema: 'Storage' } },
  },
  {
    id: 'confirmStorage',
    summary: 'Confirm possible data loss after database damage',
    method: 'post',
    path: '/storage/confirm',
    answers: {
      200: {
        means: 'Confirmed. The status is healthy again unless there are other problems.',
        schema: 'Storage',
      },
    },
  },
  {
    id: 'getReadiness',
    summary: 'Readiness: tunnels carry traffic and changes are accepted',
    method: 'get',
    path: '/readyz',
    answers: {
      200: { means: 'Yes.', schema: 'Readiness' },
      503: { means: 'No.', schema: 'Readiness' },
    },
  },
  {
    id: 'getHealth',
    summary: 'Liveness: the process and its database work',
    method: 'get',
    path: '/healthz',
    answers: { 200: { means: 'Yes.', schema: 'Health' } },
    isOpen: true,
  },
  {
    id: 'getOpenApi',
    summary: 'Get this document',
    method: 'get',
    path: '/openapi.json',
    answers: { 200: { means: 'OpenAPI 3.1.', schema: 'OpenApi' } },
  },
]

const SPEC = {
  protocol: 'http',
  forwards_to: 'localhost:8001',
  domain: 'view.cam01.site.localhost',
}
const TUNNEL = { url: 'https://view.cam01.site.localhost:8443', ...SPEC, policy: null }
const NO_PROBLEM = {
  reason: null,
  remedy: null,
  last_error: null,
  service_code: null,
  next_retry_at: null,
}
const TOKEN = {
  id: 'tok_5c1f0e7f6f0d1c2b3a49',
  name: 'site monitor',
  scope: 'read',
  source: 'made',
  created_at: '2026-11-01T08:00:00.000Z',
  expires_at: null,
  last_used_at: null,
  overlap_ends_at: null,
}

/** As clients send and get them; tests hold them against the schemas. */
const EXAMPLES: ApiDescription['examples'] = {
  TunnelSpec: SPEC,
  TunnelReplacement: { protocol: 'http', forwards_to: 'localhost:8002' },
  TunnelSet: [SPEC, { protocol: 'tcp', forwards_to: 'localhost:22' }],
  TokenRotation: { overlap_s: 3_600 },
  InspectionRequest: { minutes: 15 },
  Tunnel: TUNNEL,
  Tunnels: [{ ...TUNNEL, policy: '{"on_http_request":[]}' }],
  SetOutcome: {
    dry_run: false,
    etag: '"8c8e02e5b6a1f1ab2a7e5d0f8bb1a1c9"',
    tunnels: [
      {
        action: 'replace',
        domain: SPEC.domain,
        changes: { forwards_to: ['localhost:8000', 'localhost:8001'], policy: 'changed' },
        url: TUNNEL.url,
        state: 'online',
        ...NO_PROBLEM,
      },
    ],
  },
  Token: TOKEN,
  Tokens: [TOKEN],
  NewToken: { ...TOKEN, token: 'dagt_…' },
  Health: { status: 'ok' },
  Problem: {
    type: 'urn:device-agent:problem:tunnel-not-found',
    title: 'Tunnel not found',
    status: 404,
    detail: 'No tunnel matches door.',
    code: 'tunnel-not-found',
    request_id: 'req_5c1f0e7f6f0d1c2b',
  },
}

const API: ApiDescription = {
  title: 'Device agent',
  version: '1',
  description:
    'Manage the tunnels and API tokens of a device, and read its status, log and audit trail.',
  servers: [
    { url: 'http://127.0.0.1:7040', description: 'on the device (AGENT_LISTEN)' },
    {
      url: 'https://{agent_domain}',
      description: 'from other networks, through the tunnel of the agent',
      variables: {
        agent_domain: {
          default: 'cam01.site.localhost',
          description: 'AGENT_DOMAIN of the device',
        },
      },
    },
  ],
  resources: {
    tunnels: 'Tunnels of the device.',
    tokens: 'Tokens for this API.',
    audit: 'Audit trail of changes.',
    status: 'Status of the device.',
    doctor: 'Checks with suggested fixes.',
    log: 'Log of the agent.',
    storage: 'State of the database.',
    readyz: 'For load balancers and monitors.',
    healthz: 'For process supervisors; no token needed.',
    openapi: 'This document.',
  },
  parameters: {
    url_part: 'id, full host, or unique first host label of the tunnel; for PUT the domain',
    id: 'id or name',
    number: 'number of the exchange in the list',
  },
  examples: EXAMPLES,
  bodies: {
    TunnelSpec: TunnelBody.partial({ domain: true }),
    // The domain stands in the path.
    TunnelReplacement: TunnelBody.partial({ domain: true }),
    TunnelSet: TunnelSetBody,
    InspectionRequest,
    TokenRequest,
    TokenRotation,
  },
  views: {
    Tunnel: TunnelView,
    TunnelStatus: TunnelStatusView,
    Tunnels: z.union([z.array(TunnelView), z.array(TunnelSpecView), z.array(TunnelStatusView)]),
    SetOutcome: TunnelSetView,
    Token: TokenView,
    Tokens: z.array(TokenView),
    NewToken: NewTokenView,
    AuditPage,
    Events: z.string(),
    Metrics: z.string(),
    Status: StatusView,
    Examination: ExaminationView,
    Inspection: InspectionView,
    Exchange: ExchangeView,
    Log: LogView,
    Storage: StorageView,
    Readiness: ReadinessView,
    Health: HealthView,
    OpenApi: z.looseObject({ openapi: z.string() }),
    Problem: ProblemDetails,
  },
  error: { schema: 'Problem', mediaType: PROBLEM_TYPE },
  operations: OPERATIONS,
}

/** The OpenAPI document of the agent's REST API. */
export function agentApiDocument(): OpenApiDocument {
  return openApiDocument(API)
}
