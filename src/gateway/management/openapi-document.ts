import * as z from 'zod'
import {
  type ApiDescription,
  type OpenApiDocument,
  type Operation,
  openApiDocument,
} from '../../http/openapi.ts'
import { StorageView } from '../../store/storage-view.ts'
import { Batch, BatchView } from './batch.ts'
import type { ApiErrorBody } from './common/error-response.ts'
import { Reference } from './common/request.ts'
import { AuditEntryView } from './resources/audit.ts'
import { BotUserCreate, BotUserUpdate, BotUserView } from './resources/bot-users.ts'
import {
  ApiKeyCreate,
  ApiKeyUpdate,
  ApiKeyView,
  CredentialCreate,
  CredentialUpdate,
  CredentialView,
} from './resources/credentials.ts'
import { DeviceCreate, DeviceUpdate, DeviceView } from './resources/devices.ts'
import { EndpointCreate, EndpointUpdate, EndpointView } from './resources/endpoints.ts'
import {
  IpPolicyCreate,
  IpPolicyRuleCreate,
  IpPolicyRuleUpdate,
  IpPolicyRuleView,
  IpPolicyUpdate,
  IpPolicyView,
} from './resources/ip-policies.ts'
import { NodeView, ReadinessView } from './resources/nodes.ts'
import {
  DnsCheckView,
  ReservedAddrCreate,
  ReservedAddrUpdate,
  ReservedAddrView,
  ReservedDomainCreate,
  ReservedDomainUpdate,
  ReservedDomainView,
} from './resources/reserved-names.ts'
import { TunnelSessionView, TunnelView } from './resources/tunnel-sessions.ts'
import {
  EventView,
  WebhookEndpointCreate,
  WebhookEndpointUpdate,
  WebhookEndpointView,
  WebhookReplay,
  WebhookRotation,
  WebhookTestView,
} from './resources/webhook-endpoints.ts'

const HEALTH: Operation = {
  id: 'health',
  summary: 'Liveness: process and database work',
  method: 'get',
  path: '/healthz',
  answers: { 200: { means: 'Process and database work.', schema: 'Health' } },
  isOpen: true,
}

const READINESS: Operation = {
  id: 'ready',
  summary: 'Readiness: send visitors and agents to this gateway',
  method: 'get',
  path: '/readyz',
  answers: {
    200: { means: 'Ready, also while no gateway reaches PostgreSQL.', schema: 'Readiness' },
    503: { means: 'Not ready, with reasons.', schema: 'Readiness' },
  },
  isOpen: true,
}

const STORAGE: readonly Operation[] = [
  {
    id: 'storage',
    summary: 'State of the database',
    method: 'get',
    path: '/storage',
    answers: { 200: { means: 'The state.', schema: 'Storage' } },
  },
  {
    id: 'storage_confirm',
    summary: 'Acknowledge possible data loss after damage',
    method: 'post',
    path: '/storage/confirm',
    answers: { 200: { means: 'The state now.', schema: 'Storage' } },
  },
]

const BATCH: Operation = {
  id: 'batch',
  summary: 'Create many resources, each with its own answer',
  description:
    'Each item is handled like a separate request, in no fixed order. Items must not depend on each other. An item counts as a tenth of a request.',
  method: 'post',
  path: '/batch',
  body: 'Batch',
  answers: { 200: { means: 'The answer for each item.', schema: 'BatchAnswers' } },
}

const METRICS: Operation = {
  id: 'metrics',
  summary: 'Metrics for Prometheus; svc-version is not required',
  method: 'get',
  path: '/metrics',
  answers: {
    200: {
      means: 'Prometheus text format, version 0.0.4.',
      schema: 'Metrics',
      mediaType: 'text/plain',
    },
  },
}

const OPENAPI: Operation = {
  id: 'openapi',
  summary: 'OpenAPI document',
  method: 'get',
  path: '/openapi.json',
  answers: { 200: { means: 'OpenAPI 3.1.', schema: 'OpenApi' } },
}

/** Operations that are no verbs of a resource. */
const SINGLE_OPERATIONS: readonly Operation[] = [
  BATCH,
  ...STORAGE,
  METRICS,
  OPENAPI,
  HEALTH,
  READINESS,
]

/** One resource: it has the verbs that it has schemas for. */
interface ResourceDescription {
  readonly path: string
  /** Key of the list in a list answer; unset: the path. */
  readonly collection?: string
  /** Prefix of its schema names. */
  readonly noun: string
  readonly view: z.ZodObject
  readonly create?: z.ZodType
  readonly update?: z.ZodType
  /** `POST /<path>/{id}/<name>`. */
  readonly actions?: readonly {
    readonly name: string
    readonly summary: string
    /** Schema of the response; undefined for none. */
    readonly schema?: string
    /** Schema of the request body. */
    readonly body?: string
  }[]
  /** Summary of `DELETE /<path>/{id}`, if it differs from the default. */
  readonly deletion?: string
  /** `DELETE /<path>/{id}/<name>`. */
  readonly removals?: readonly { readonly name: string; readonly summary: string }[]
}

const BOT_USER = {
  noun: 'BotUser',
  view: BotUserView,
  create: BotUserCreate,
  update: BotUserUpdate,
}

const RESOURCES: readonly ResourceDescription[] = [
  {
    path: 'reserved_domains',
    noun: 'ReservedDomain',
    view: ReservedDomainView,
    create: ReservedDomainCreate,
    update: ReservedDomainUpdate,
    actions: [
      { name: 'check', summary: 'Check the CNAME records of a domain', schema: 'DnsCheck' },
    ],
    removals: [
      { name: 'certificate', summary: 'Detach a certificate; attaching is not supported' },
      {
        name: 'certificate_management_policy',
        summary: 'Return to certificates of the local CA',
      },
    ],
  },
  {
    path: 'reserved_addrs',
    noun: 'ReservedAddr',
    view: ReservedAddrView,
    create: ReservedAddrCreate,
    update: ReservedAddrUpdate,
  },
  { path: 'bot_users', ...BOT_USER },
  { path: 'service_users', ...BOT_USER },
  {
    path: 'credentials',
    noun: 'Credential',
    view: CredentialView,
    create: CredentialCreate,
    update: CredentialUpdate,
  },
  {
    path: 'api_keys',
    collection: 'keys',
    noun: 'ApiKey',
    view: ApiKeyView,
    create: ApiKeyCreate,
    update: ApiKeyUpdate,
  },
  {
    path: 'endpoints',
    noun: 'Endpoint',
    view: EndpointView,
    create: EndpointCreate,
    update: EndpointUpdate,
  },
  { path: 'tunnels', noun: 'Tunnel', view: TunnelView },
  {
    path: 'tunnel_sessions',
    noun: 'TunnelSession',
    view: TunnelSessionView,
    actions: [
      { name: 'restart', summary: 'Restart the session of the agent' },
      { name: 'stop', summary: 'Stop the agent' },
      { name: 'update', summary: 'Update the agent' },
    ],
  },
  {
    path: 'devices',
    noun: 'Device',
    view: DeviceView,
    create: DeviceCreate,
    update: DeviceUpdate,
  },
  {
    path: 'nodes',
    noun: 'Node',
    view: NodeView,
    actions: [
      { name: 'drain', summary: 'Drain a node', schema: 'Node' },
      { name: 'undrain', summary: 'Cancel the drain of a node', schema: 'Node' },
    ],
    deletion: 'Remove a lost node; it can only return as a new node',
  },
  {
    path: 'ip_policies',
    noun: 'IpPolicy',
    view: IpPolicyView,
    create: IpPolicyCreate,
    update: IpPolicyUpdate,
  },
  {
    path: 'ip_policy_rules',
    noun: 'IpPolicyRule',
    view: IpPolicyRuleView,
    create: IpPolicyRuleCreate,
    update: IpPolicyRuleUpdate,
  },
  {
    path: 'webhook_endpoints',
    noun: 'WebhookEndpoint',
    view: WebhookEndpointView,
    create: WebhookEndpointCreate,
    update: WebhookEndpointUpdate,
    actions: [
      {
        name: 'test',
        summary: 'Send a test message',
        schema: 'WebhookTest',
      },
      { name: 'replay', summary: 'Send past events again', body: 'WebhookReplay' },
      {
        name: 'rotate',
        summary: 'Create a new secret; it is shown once',
        body: 'WebhookRotation',
        schema: 'WebhookEndpoint',
      },
    ],
  },
  { path: 'events', noun: 'Event', view: EventView },
  { path: 'audit', collection: 'entries', noun: 'AuditEntry', view: AuditEntryView },
]

/** Words for the tags of the document. */
const ABOUT: ApiDescription['resources'] = {
  reserved_domains: 'Host names for devices and cloud endpoints.',
  reserved_addrs: 'TCP addresses reserved for an account.',
  bot_users: 'Owners of authtokens and API keys.',
  service_users: 'Bot users under their newer name.',
  credentials: 'Authtokens and their ACL rules.',
  api_keys: 'Credentials for this API.',
  endpoints: 'Online endpoints, and management of cloud endpoints.',
  tunnels: 'Online endpoints of devices.',
  tunnel_sessions: 'Connected devices.',
  nodes: 'Gateways of the cluster.',
  ip_policies: 'Lists of IP ranges for policies and authtokens.',
  ip_policy_rules: 'IP ranges of IP policies.',
  audit: 'Audit log of changes.',
  batch: 'Creation of many resources in one request.',
  storage: 'State of the database.',
  healthz: 'Liveness check, without an API key.',
  readyz: 'Readiness check for load balancers, without an API key.',
  openapi: 'This document.',
}

const EXAMPLES: ApiDescription['examples'] = {
  ReservedDomainCreate: { domain: '*.site.localhost' },
  BotUserCreate: { name: 'cam01' },
  CredentialCreate: { description: 'device cam01', acl: ['bind:*.cam01.site.localhost'] },
  ApiKeyCreate: { description: 'inventory', scope: 'read' },
  Batch: { requests: [{ path: 'bot_users', body: { name: 'cam01' } }] },
  Health: { status: 'ok' },
  Readiness: { ready: true, degraded: false, reasons: [] },
  Error: {
    error_code: 'ERR_NGROK_404',
    status_code: 404,
    msg: 'The resource does not exist.',
    details: {},
  },
}

const PageQuery = z.strictObject({
  limit: z.int().min(1).max(100).optional().describe('page size [100]'),
  before_id: z.string().optional().describe('only items created before this item'),
  filter: z
    .string()
    .min(1)
    .max(4_096)
    .optional()
    .describe('only items for which this CEL expression is true, such as obj.id == "cr_1"'),
})

const ApiError = z.strictObject({
  error_code: z.string().exactOptional(),
  status_code: z.int().min(400).max(599),
  msg: z.string(),
  details: z.record(z.string(), z.string()),
}) satisfies z.ZodType<ApiErrorBody>

/** The OpenAPI document of the management API. */
export function managementApiDocument(): OpenApiDocument {
  return openApiDocument({
    title: 'Device gateway management',
    version: '2',
    description:
      'Reserved domains, bot users, authtokens with ACL rules, API keys, online endpoints and the audit log.',
    servers: [
      {
        url: 'http://127.0.0.1:8070',
        description: 'on the machine of the gateway (GATEWAY_API_LISTEN)',
      },
    ],
    resources: ABOUT,
    parameters: { id: 'id of the resource' },
    examples: EXAMPLES,
    headers: {
      'svc-version': { const: '2', description: 'API version; ngrok-version is accepted too' },
    },
    bodies: Object.assign({}, ...RESOURCES.map(bodiesOf), {
      WebhookReplay,
      WebhookRotation,
      Batch,
    }),
    views: Object.assign({}, ...RESOURCES.map(viewsOf), {
      Reference,
      DnsCheck: DnsCheckView,
      WebhookTest: WebhookTestView,
      BatchAnswers: BatchView,
      Storage: StorageView,
      Health: z.strictObject({ status: z.literal('ok') }),
      Readiness: ReadinessView,
      Metrics: z.string(),
      OpenApi: z.looseObject({ openapi: z.string() }),
      Error: ApiError,
    }),
    error: { schema: 'Error', mediaType: 'application/json' },
    operations: [...RESOURCES.flatMap(operationsOf), ...SINGLE_OPERATIONS],
  })
}

function bodiesOf({ noun, create, update }: ResourceDescription): Record<string, z.ZodType> {
  return {
    ...(create && { [`${noun}Create`]: create }),
    ...(update && { [`${noun}Update`]: update }),
  }
}

/** Lists of items in the memory of nodes. */
const ELSEWHERE = new Set(['endpoints', 'tunnels', 'tunnel_sessions', 'devices'])
const MissingNodes = z
  .array(z.strictObject({ id: z.string(), name: z.string() }))
  .optional()
  .describe('nodes that did not answer; their items are missing from the list')

/** The two names of bot users have lists of their own: the key in them differs. */
function viewsOf({ path, noun, view, collection = path }: ResourceDescription) {
  const list = z.strictObject({
    uri: z.string(),
    next_page_uri: z.string().nullable(),
    [collection]: z.array(view),
    ...(ELSEWHERE.has(path) && { missing_nodes: MissingNodes }),
  })
  return { [noun]: view, [listName(path)]: list }
}

/** `reserved_domains` to `ReservedDomainsList`. */
function listName(path: string): string {
  return `${path.replace(/(?:^|_)(\w)/g, (_, letter: string) => letter.toUpperCase())}List`
}

function operationsOf(resource: ResourceDescription) {
  const { path, noun, create, update, actions = [], removals = [] } = resource
  const { deletion = create && 'Delete' } = resource
  const all = `/${path}`
  const one = `${all}/{id}`
  const it = { means: 'The resource.', schema: noun }
  const operations: (Operation | false | undefined)[] = [
    {
      id: `${path}_list`,
      summary: 'List, newest first',
      method: 'get',
      path: all,
      query: PageQuery,
      answers: { 200: { means: 'A page of the list.', schema: listName(path) } },
    },
    create && {
      id: `${path}_create`,
      summary: 'Create',
      method: 'post',
      path: all,
      body: `${noun}Create`,
      answers: { 201: it },
    },
    {
      id: `${path}_get`,
      summary: 'Get',
      method: 'get',
      path: one,
      answers: { 200: it },
    },
    update && {
      id: `${path}_update`,
      summary: 'Change the given fields',
      method: 'patch',
      path: one,
      body: `${noun}Update`,
      answers: { 200: it },
    },
    deletion !== undefined && {
      id: `${path}_delete`,
      summary: deletion,
      method: 'delete',
      path: one,
      answers: { 204: { means: 'Deleted.' } },
    },
    ...removals.map(
      ({ name, summary }): Operation => ({
        id: `${path}_delete_${name}`,
        summary,
        method: 'delete',
        path: `${one}/${name}`,
        answers: { 204: { means: 'Done.' } },
      }),
    ),
    ...actions.map(
      ({ name, summary, schema, body }): Operation => ({
        id: `${path}_${name}`,
        summary,
        method: 'post',
        path: `${one}/${name}`,
        ...(body && { body }),
        answers: schema ? { 200: { means: 'Done.', schema } } : { 204: { means: 'Done.' } },
      }),
    ),
  ]
  return operations.filter((operation): operation is Operation => Boolean(operation))
}
