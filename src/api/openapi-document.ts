import { PROBLEM_TYPE, ProblemDetails } from '../http/error-response.ts'
import { type ApiDescription, type OpenApiDocument, openApiDocument } from '../http/openapi.ts'
import type { Route } from '../http/routes.ts'

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

/** The OpenAPI document of the agent's REST API. */
export function agentApiDocument(routes: readonly Route[]): OpenApiDocument {
  return openApiDocument({
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
    parameters: {
      url_part: 'id, full host, or unique first host label of the tunnel; for PUT the domain',
      id: 'id or name',
      number: 'number of the exchange in the list',
    },
    examples: EXAMPLES,
    error: { schema: { Problem: ProblemDetails }, mediaType: PROBLEM_TYPE },
    routes,
  })
}
