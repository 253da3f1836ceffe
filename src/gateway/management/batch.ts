import { Router } from 'express'
import * as z from 'zod'
import type { AuditedChange } from '../../base/audit.ts'
import { actionOf, changeOf } from '../../http/change-audit.ts'
import { largeJsonBody } from '../../http/json-body.ts'
import { callerOf, chargeOf } from './common/caller.ts'
import { type ApiErrorBody, notFoundBody } from './common/error-response.ts'
import { baseUrlOf, parseBody, refuseQuery } from './common/request.ts'
import { changedBetween, type Resource } from './common/resource.ts'

const MOST = 100
/** As much as so many single requests of the usual kind; policies of endpoints are larger. */
const MAX_BYTES = 1024 * 1024
/** Cost of an item in requests of its key, in addition to the batch request. */
const COST = 0.1

export const Batch = z.strictObject({
  requests: z
    .array(
      z.strictObject({
        path: z.string().describe('resource type, such as bot_users'),
        body: z.record(z.string(), z.unknown()).describe('body of POST /<path>'),
      }),
    )
    .min(1)
    .max(MOST),
})
export const BatchView = z.strictObject({
  responses: z
    .array(
      z.strictObject({
        status: z.int().describe('status of POST /<path>'),
        body: z.looseObject({}).describe('created resource, or an error'),
      }),
    )
    .describe('same order as the requests'),
})

/** The part of a resource that creates items. */
export interface Creatable extends Pick<Resource<never>, 'path' | 'create'> {
  /** Audit entry of a new item. */
  readonly madeAs: (id: string, baseUrl: string) => Partial<AuditedChange>
}

export interface BatchOptions {
  /** Resources of the batch. Resources without `create` are refused. */
  readonly resources: readonly Creatable[]
  readonly errorBody: (thrown: unknown) => ApiErrorBody
}

/**
 * `POST /batch`: creates many items with one request. Each item is created, answered and audited like a
 * single request, and a refused item does not stop the others. All share the cost of writing to disk.
 */
export function batchRoutes({ resources, errorBody }: BatchOptions): Router {
  const byPath = new Map(resources.map((resource) => [resource.path, resource]))
  const router = Router()
  router.post('/batch', largeJsonBody(MAX_BYTES), async (request, response) => {
    refuseQuery(request)
    const { requests } = parseBody(Batch, request.body)
    chargeOf(response)(requests.length * COST)
    const [caller, change, baseUrl] = [callerOf(response), changeOf(response), baseUrlOf(request)]
    const answer = async ({ path, body }: (typeof requests)[number]) => {
      const resource = byPath.get(path)
      const create = resource?.create
      if (!create) return { status: 404, body: notFoundBody(`/${path}`) }
      try {
        const made = await change.run(
          async () => create(body, baseUrl, caller),
          (view) => changedBetween({}, view),
          actionOf(`/${path}`, 'create'),
          (id) => resource.madeAs(id, baseUrl),
        )
        return { status: 201, body: made }
      } catch (error) {
        const refusal = errorBody(error)
        return { status: refusal.status_code, body: refusal }
      }
    }
    response.json({ responses: await Promise.all(requests.map(answer)) })
  })
  return router
}
