import * as z from 'zod'
import { actionOf } from '../../http/change-audit.ts'
import { largeJsonBody } from '../../http/json-body.ts'
import type { Route } from '../../http/routes.ts'
import { chargeOf } from '../resources/common/caller.ts'
import { type ApiErrorBody, NoSuchPathError } from '../resources/common/error-response.ts'
import { baseUrlOf, parseBody, refuseQuery } from '../resources/common/request.ts'
import { type AnyItem, createItem, type Resource } from '../resources/common/resource.ts'

/** Items of one batch. */
export const MAX_ITEMS = 100
/** As much as so many single requests of the usual kind; policies of endpoints are larger. */
const MAX_BYTES = 1024 * 1024
/** Cost of an item in requests of its key, in addition to the batch request. */
const COST = 0.1

const Batch = z.strictObject({
  requests: z
    .array(
      z.strictObject({
        path: z.string().describe('resource type, such as bot_users'),
        body: z.record(z.string(), z.unknown()).describe('body of POST /<path>'),
      }),
    )
    .min(1)
    .max(MAX_ITEMS),
})
const BatchView = z.strictObject({
  responses: z
    .array(
      z.strictObject({
        status: z.int().describe('status of POST /<path>'),
        body: z.looseObject({}).describe('created resource, or an error'),
      }),
    )
    .describe('same order as the requests'),
})

export interface BatchOptions {
  /** Resources of the batch. Resources without `create` are refused. */
  readonly resources: readonly Resource<AnyItem>[]
  readonly errorBody: (thrown: unknown) => ApiErrorBody
}

/**
 * `POST /batch`: creates many items with one request. Each item is created, answered and audited like a
 * single request, and a refused item does not stop the others. All share the cost of writing to disk.
 */
export function batchRoute({ resources, errorBody }: BatchOptions): Route {
  const byPath = new Map(resources.map((resource) => [resource.path, resource]))
  return {
    route: 'POST /batch',
    id: 'batch',
    summary: 'Create many resources, each with its own answer',
    description:
      'Each item is handled like a separate request, in no fixed order. Items must not depend on each other. An item counts as a tenth of a request.',
    about: 'Creation of many resources in one request.',
    body: { Batch },
    answers: { 200: { means: 'The answer for each item.', schema: { BatchAnswers: BatchView } } },
    before: [largeJsonBody(MAX_BYTES)],
    handle: async (request, response) => {
      refuseQuery(request)
      const { requests } = parseBody(Batch, request.body)
      chargeOf(response)(requests.length * COST)
      const baseUrl = baseUrlOf(request)
      const answer = async ({ path, body }: (typeof requests)[number]) => {
        const resource = byPath.get(path)
        if (!resource?.create)
          return { status: 404, body: errorBody(new NoSuchPathError(`/${path}`)) }
        try {
          const tried = actionOf(`/${path}`, 'create')
          const asked = { body, baseUrl }
          const made = await createItem(resource, resource.create, asked, response, tried)
          return { status: 201, body: made }
        } catch (error) {
          const refusal = errorBody(error)
          return { status: refusal.status_code, body: refusal }
        }
      }
      response.json({ responses: await Promise.all(requests.map(answer)) })
    },
  }
}
