import * as z from 'zod'
import { TunnelBody } from '../agent/tunnel.ts'
import { PROBLEM_TYPE, ProblemDetails } from '../http/error-response.ts'
import { type ApiDescription, type OpenApiDocument, openApiDocument } from '../http/openapi.ts'
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
