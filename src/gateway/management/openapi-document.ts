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
    error_code: 'ERR_GATEWAY_NOT_FOUND',
    status_code: 404,
    msg: 'Resource not found',
    details: { operation_id: 'op_2vZ0000000000000000000000Aa' },
  },
}

const ApiError = z.strictObject({
  error_code: z.string().describe('stable error code, such as ERR_NGROK_227'),
  status_code: z.int().min(400).max(599).describe('HTTP status'),
  msg: z.string().describe('cause and fix, in one or two sentences'),
  details: z
    .record(z.string(), z.string())
    .describe(
      'operation_id, which the log of the gateway has for status 500; path if it is unknown',
    ),
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
