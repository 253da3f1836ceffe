import * as z from 'zod'
import { TunnelBody } from '../agent/tunnel.ts'
import {
  type ApiDescription,
  type OpenApiDocument,
  type Operation,
  openApiDocument,
} from '../http/openapi.ts'
import { PROBLEM_TYPE, ProblemDetails } from '../http/problem-details.ts'
import { StorageView } from '../store/storage-view.ts'
import { AuditListQuery, AuditPage } from './audit.ts'
import { ExaminationView } from './diagnosis/doctor.ts'
import { LogQuery, LogView } from './diagnosis/log.ts'
import { EventsQuery } from './events/events.ts'
import { HealthView, ReadinessView } from './health.ts'
import { StatusView } from './status-view.ts'
import { NewTokenView, TokenRequest, TokenRotation, TokenView } from './token-view.ts'
import { TunnelSpecView, TunnelStatusView, TunnelView } from './tunnel-view.ts'
import { TunnelSetBody, TunnelSetView } from './tunnels/tunnel-set-view.ts'
import { ListQuery, SetQuery } from './tunnels.ts'

const OPERATIONS: readonly Operation[] = [
  {
    id: 'listTunnels',
    summary: 'All tunnels, oldest first',
    method: 'get',
    path: '/tunnels',
    query: ListQuery,
    hasEtag: true,
    answers: { 200: { means: 'The tunnels; with view=status, how each is.', schema: 'Tunnels' } },
  },
  {
    id: 'createTunnel',
    summary: 'Create a tunnel',
    description:
      'Stores the tunnel, opens it, and answers when the outcome is known. What the service refuses is not kept. Without a policy it gets the default one of the device.',
    method: 'post',
    path: '/tunnels',
    obeysConditions: true,
    body: 'TunnelSpec',
    answers: {
      200: { means: 'It is stored and online.', schema: 'Tunnel' },
      202: { means: 'It is stored and opens when the link is back.', schema: 'Tunnel' },
    },
  },
  {
    id: 'replaceTunnels',
    summary: 'Make these all the tunnels of the device',
    description:
      'Creates, replaces, deletes and keeps, in one write. What the device refuses of one tunnel refuses all of them; what the service refuses stays, is shown as refused, and is tried again.',
    method: 'put',
    path: '/tunnels',
    query: SetQuery,
    obeysConditions: true,
    body: 'TunnelSet',
    answers: {
      200: {
        means: 'All of them are stored and online, or it was a dry run.',
        schema: 'SetOutcome',
      },
      202: {
        means: 'All are stored; some are not online yet, or were refused.',
        schema: 'SetOutcome',
      },
    },
  },
  {
    id: 'getTunnel',
    summary: 'One tunnel and how it is',
    method: 'get',
    path: '/tunnels/{url_part}',
    hasEtag: true,
    answers: { 200: { means: 'The tunnel.', schema: 'TunnelStatus' } },
  },
  {
    id: 'replaceTunnel',
    summary: 'Create or replace the tunnel of a domain',
    method: 'put',
    path: '/tunnels/{url_part}',
    body: 'TunnelReplacement',
    obeysConditions: true,
    answers: {
      200: { means: 'It was replaced.', schema: 'Tunnel' },
      201: { means: 'It was created.', schema: 'Tunnel' },
      202: { means: 'It is stored and opens when the link is back.', schema: 'Tunnel' },
    },
  },
  {
    id: 'deleteTunnel',
    summary: 'Close and delete a tunnel',
    method: 'delete',
    path: '/tunnels/{url_part}',
    obeysConditions: true,
    answers: { 204: { means: 'It is closed at the service and deleted.' } },
  },
  {
    id: 'listTokens',
    summary: 'Who may use this API, oldest first',
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
    answers: { 201: { means: 'It, with its secret this once.', schema: 'NewToken' } },
  },
  {
    id: 'getToken',
    summary: 'One token, by id or name',
    method: 'get',
    path: '/tokens/{id}',
    answers: { 200: { means: 'The token.', schema: 'Token' } },
  },
  {
    id: 'rotateToken',
    summary: 'Give a token a new secret',
    method: 'post',
    path: '/tokens/{id}/rotate',
    body: 'TokenRotation',
    hasOptionalBody: true,
    answers: { 200: { means: 'It, with the new secret this once.', schema: 'NewToken' } },
  },
  {
    id: 'revokeToken',
    summary: 'End a token at once, for good',
    method: 'delete',
    path: '/tokens/{id}',
    answers: { 204: { means: 'It opens nothing any more.' } },
  },
  {
    id: 'listAudit',
    summary: 'Who changed what, newest first',
    method: 'get',
    path: '/audit',
    query: AuditListQuery,
    answers: { 200: { means: 'A page of the audit trail.', schema: 'AuditPage' } },
  },
  {
    id: 'listEvents',
    summary: 'Each change of a tunnel, the link, the storage and the policy, as it happens',
    method: 'get',
    path: '/events',
    query: EventsQuery,
    answers: {
      200: {
        means: 'Server-sent events, without an end.',
        schema: 'Events',
        mediaType: 'text/event-stream',
      },
    },
  },
  {
    id: 'getMetrics',
    summary: 'Figures for Prometheus',
    method: 'get',
    path: '/metrics',
    answers: {
      200: { means: 'The text format, version 0.0.4.', schema: 'Metrics', mediaType: 'text/plain' },
    },
  },
  {
    id: 'getStatus',
    summary: 'How the device is',
    method: 'get',
    path: '/status',
    answers: { 200: { means: 'Everything, in one object.', schema: 'Status' } },
  },
  {
    id: 'examine',
    summary: 'Each link of the chain, looked at now: what is wrong, and what to do about it',
    method: 'get',
    path: '/doctor',
    answers: { 200: { means: 'What was found, in order.', schema: 'Examination' } },
  },
  {
    id: 'getLog',
    summary: 'The newest lines of the log',
    method: 'get',
    path: '/log',
    query: LogQuery,
    answers: { 200: { means: 'Lines, oldest first.', schema: 'Log' } },
  },
  {
    id: 'getStorage',
    summary: 'How the database is',
    method: 'get',
    path: '/storage',
    answers: { 200: { means: 'The same as in the status.', schema: 'Storage' } },
  },
  {
    id: 'confirmStorage',
    summary: 'Say that it was seen what may be missing after a damage',
    method: 'post',
    path: '/storage/confirm',
    answers: {
      200: { means: 'The status is healthy again, if nothing else is wrong.', schema: 'Storage' },
    },
  },
  {
    id: 'getReadiness',
    summary: 'Whether the tunnels carry traffic and changes are taken',
    method: 'get',
    path: '/readyz',
    answers: {
      200: { means: 'They do.', schema: 'Readiness' },
      503: { means: 'They do not.', schema: 'Readiness' },
    },
  },
  {
    id: 'getHealth',
    summary: 'Whether the process and its database work',
    method: 'get',
    path: '/healthz',
    answers: { 200: { means: 'They do.', schema: 'Health' } },
    isOpen: true,
  },
  {
    id: 'getOpenApi',
    summary: 'This document',
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
    title: 'There is no such tunnel',
    status: 404,
    detail: 'No tunnel is called door.',
    code: 'tunnel-not-found',
    request_id: 'req_5c1f0e7f6f0d1c2b',
  },
}

const API: ApiDescription = {
  title: 'Device agent',
  version: '1',
  description:
    'The tunnels of one device: create, look at, replace, delete; and who may, and who did.',
  servers: [
    { url: 'http://127.0.0.1:7040', description: 'on the device itself (AGENT_LISTEN)' },
    {
      url: 'https://{agent_domain}',
      description: 'from anywhere, through the tunnel of the agent',
      variables: {
        agent_domain: {
          default: 'cam01.site.localhost',
          description: 'AGENT_DOMAIN of the device',
        },
      },
    },
  ],
  resources: {
    tunnels: 'What the device makes reachable, and where.',
    tokens: 'Who may use this API.',
    audit: 'Who changed what.',
    status: 'How the device is, in one object.',
    storage: 'How its database is.',
    readyz: 'For load balancers and monitors.',
    healthz: 'For whoever restarts processes; without a token.',
    openapi: 'This document.',
  },
  parameters: {
    url_part:
      "the tunnel's id, its full host, or its first label when exactly one tunnel has it; in a PUT its domain",
    id: 'id or name',
  },
  examples: EXAMPLES,
  bodies: {
    TunnelSpec: TunnelBody.partial({ domain: true }),
    // The domain stands in the path.
    TunnelReplacement: TunnelBody.partial({ domain: true }),
    TunnelSet: TunnelSetBody,
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
