import type { ApiDescription } from '../../http/openapi.ts'

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
export const EXAMPLES: ApiDescription['examples'] = {
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
