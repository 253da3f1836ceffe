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
import { TunnelStatusView, TunnelView } from './tunnel-view.ts'
import { ListQuery } from './tunnels.ts'

const OPERATIONS: readonly Operation[] = [
  {
    id: 'listTunnels',
    summary: 'All tunnels, oldest first',
    method: 'get',
    path: '/tunnels',
    query: ListQuery,
    answers: { 200: { means: 'The tunnels; with view=status, how each is.', schema: 'Tunnels' } },
  },
  {
    id: 'createTunnel',
    summary: 'Create a tunnel',
    method: 'post',
    path: '/tunnels',
    body: 'TunnelSpec',
    answers: {
      200: { means: 'It is stored and online.', schema: 'Tunnel' },
      202: { means: 'It is stored and opens when the link is back.', schema: 'Tunnel' },
    },
  },
  {
    id: 'getTunnel',
    summary: 'One tunnel and how it is',
    method: 'get',
    path: '/tunnels/{url_part}',
    answers: { 200: { means: 'The tunnel.', schema: 'TunnelStatus' } },
  },
  {
    id: 'replaceTunnel',
    summary: 'Create or replace the tunnel of a domain',
    method: 'put',
    path: '/tunnels/{url_part}',
    body: 'TunnelReplacement',
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

const API: ApiDescription = {
  title: 'Device agent',
  version: '1',
  description:
    'The tunnels of one device: create, look at, replace, delete; and who may, and who did.',
  bodies: {
    TunnelSpec: TunnelBody.partial({ domain: true }),
    // The domain stands in the path.
    TunnelReplacement: TunnelBody.partial({ domain: true }),
    TokenRequest,
    TokenRotation,
  },
  views: {
    Tunnel: TunnelView,
    TunnelStatus: TunnelStatusView,
    Tunnels: z.union([z.array(TunnelView), z.array(TunnelStatusView)]),
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
