import * as z from 'zod'
import { TunnelBody } from '../agent/tunnel.ts'
import { type ApiDescription, type OpenApiDocument, openApiDocument } from '../http/openapi.ts'
import { PROBLEM_TYPE, ProblemDetails } from '../http/problem-details.ts'
import { StorageView } from '../store/storage-view.ts'
import { AuditPage } from './audit.ts'
import { ExaminationView } from './diagnosis/doctor.ts'
import { LogView } from './diagnosis/log.ts'
import { HealthView, ReadinessView } from './health.ts'
import { ExchangeView } from './inspection/exchange-view.ts'
import { InspectionRequest, InspectionView } from './inspection/inspect.ts'
import { EXAMPLES } from './openapi/examples.ts'
import { OPERATIONS } from './openapi/operations.ts'
import { StatusView } from './status-view.ts'
import { NewTokenView, TokenRequest, TokenRotation, TokenView } from './token-view.ts'
import { TunnelSpecView, TunnelStatusView, TunnelView } from './tunnel-view.ts'
import { TunnelSetBody, TunnelSetView } from './tunnels/tunnel-set-view.ts'

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
    doctor: 'What is wrong with it, and what to do.',
    log: 'What it has logged.',
    storage: 'How its database is.',
    readyz: 'For load balancers and monitors.',
    healthz: 'For whoever restarts processes; without a token.',
    openapi: 'This document.',
  },
  parameters: {
    url_part:
      "the tunnel's id, its full host, or its first label when exactly one tunnel has it; in a PUT its domain",
    id: 'id or name',
    number: 'of an exchange, as the list has it',
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
