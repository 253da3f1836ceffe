import type { Operation } from '../../http/openapi.ts'
import { AuditListQuery } from '../audit.ts'
import { LogQuery } from '../diagnosis/log.ts'
import { EventsQuery } from '../events/events.ts'
import { ListQuery, SetQuery } from '../tunnels.ts'

/** What can be asked of the agent, one after the other as the document has it. */
export const OPERATIONS: readonly Operation[] = [
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
