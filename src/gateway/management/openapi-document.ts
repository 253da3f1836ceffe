import * as z from 'zod'
import { type ApiDescription, type OpenApiDocument, openApiDocument } from '../../http/openapi.ts'
import type { Route } from '../../http/routes.ts'
import type { ApiErrorBody } from '../resources/common/error-response.ts'
import { Reference } from '../resources/common/request.ts'

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

const ApiError = z.strictObject({
  error_code: z.string().exactOptional(),
  status_code: z.int().min(400).max(599),
  msg: z.string(),
  details: z.record(z.string(), z.string()),
}) satisfies z.ZodType<ApiErrorBody>

/** The OpenAPI document of the management API. */
export function managementApiDocument(routes: readonly Route[]): OpenApiDocument {
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
    parameters: { id: 'id of the resource' },
    examples: EXAMPLES,
    headers: {
      'svc-version': { const: '2', description: 'API version; ngrok-version is accepted too' },
    },
    parts: { Reference },
    error: { schema: { Error: ApiError }, mediaType: 'application/json' },
    routes,
  })
}
