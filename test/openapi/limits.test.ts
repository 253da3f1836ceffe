import { expect, it } from 'vitest'
import { MAX_TOKENS } from '../../src/api/api-tokens.ts'
import { MAX_SUBSCRIBERS } from '../../src/api/events/events.ts'
import { MAX_ITEMS } from '../../src/gateway/management/batch.ts'
import { MAX_DESCRIPTION, MAX_METADATA } from '../../src/gateway/records/service-error.ts'
import { REQUESTS } from '../../src/gateway/resources/common/caller.ts'
import { MAX_DEPTH } from '../../src/http/json-body.ts'
import type { OpenApiDocument } from '../../src/http/openapi.ts'
import { AGENT } from '../../src/settings/agent-settings.ts'
import { startApi } from '../api/started-api.ts'
import { expectTable } from '../helpers/document-part.ts'
import { startManagementApi } from '../helpers/management-client.ts'

const HEADS = ['limit', 'value', 'beyond it']

interface Operation {
  readonly requestBody?: { readonly description: string }
  readonly parameters?: readonly { readonly name: string; readonly schema: { maximum?: number } }[]
}

const operationsOf = ({ paths }: OpenApiDocument) =>
  Object.entries(paths).flatMap(([path, operations]) =>
    Object.entries(operations).map(([method, operation]) => {
      return { route: `${method.toUpperCase()} ${path}`, operation: operation as Operation }
    }),
  )

/** Limits of bodies as the document tells them: those of single operations, then that of all others. */
function bodyRows(document: OpenApiDocument, beyond: string) {
  const limits = operationsOf(document).flatMap(({ route, operation }) => {
    const [, size] = /at most (.+)\.$/.exec(operation.requestBody?.description ?? '') ?? []
    return size === undefined ? [] : [{ route, size }]
  })
  const usual = '64 KiB'
  expect(limits.filter(({ size }) => size === usual).length).toBeGreaterThan(3)
  const larger = limits.filter(({ size }) => size !== usual)
  return [
    ...larger.map(({ route, size }) => [`JSON body of \`${route}\``, size, beyond]),
    ['JSON body of other requests', usual, beyond],
  ]
}

/** Largest page of a list, in items. */
function pageLimit(document: OpenApiDocument, of: string): number {
  const found = operationsOf(document).find(({ route }) => route === of)
  return found?.operation.parameters?.find(({ name }) => name === 'limit')?.schema.maximum ?? 0
}

it('the reference of the agent API has its limits', async () => {
  const { document } = await startApi()
  const headers = ['request line and headers', '16 KiB', '431 `headers-too-large`']
  const { fallback } = AGENT.AGENT_MAX_TUNNELS
  expectTable('docs/reference/agent-api.md', 'limits', HEADS, [
    ...bodyRows(document, '413 `body-too-large`'),
    ['levels of JSON', MAX_DEPTH, '400 `invalid-json`'],
    headers,
    [
      'entries of a page of `GET /audit`',
      pageLimit(document, 'GET /audit'),
      '400 `invalid-request`',
    ],
    ['lines of `GET /log`', pageLimit(document, 'GET /log'), '400 `invalid-request`'],
    ['tunnels', `\`AGENT_MAX_TUNNELS\`, ${fallback} by default`, '409 `too-many-tunnels`'],
    ['tokens', MAX_TOKENS, '409 `too-many-tokens`'],
    ['readers of `GET /events`', MAX_SUBSCRIBERS, '429 `too-many-requests`'],
  ])
})

it('the reference of the management API has its limits', async () => {
  const { document } = await startManagementApi()
  const { capacity, refillPerS } = REQUESTS
  const page = pageLimit(document, 'GET /credentials')
  expectTable('docs/reference/management-api.md', 'limits', HEADS, [
    ...bodyRows(document, '413 `ERR_GATEWAY_BODY_TOO_LARGE`'),
    ['levels of JSON', MAX_DEPTH, '400 `ERR_NGROK_213`'],
    ['request line and headers', '16 KiB', '431 `ERR_GATEWAY_HEADERS_TOO_LARGE`'],
    ['items of a page', page, '400 `ERR_NGROK_244`'],
    ['items of `POST /batch`', MAX_ITEMS, '400 `ERR_NGROK_215`'],
    ['`description` of a resource', `${MAX_DESCRIPTION} bytes`, '400, a code for each resource'],
    ['`metadata` of a resource', `${MAX_METADATA} bytes`, '400, a code for each resource'],
    [
      'requests of an API key',
      `${capacity} at once, then ${refillPerS} a second`,
      '429 `ERR_NGROK_226`',
    ],
  ])
})
