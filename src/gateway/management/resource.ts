import { type Request, type RequestHandler, type Response, Router } from 'express'
import { changeOf } from '../../http/change-audit.ts'
import { jsonBody } from '../../http/json-body.ts'
import { ServiceError } from '../records/service-error.ts'
import { changedBetween, named } from './audit/audited-fields.ts'
import { baseUrlOf } from './body.ts'
import { type Caller, callerOf, sees } from './caller.ts'
import { refuseQuery } from './page-query.ts'
import type { ListedResource, ResourceLists } from './resource-lists.ts'

/** One kind of thing that the API lists, shows and changes. Verbs that are missing are not served. */
export interface Resource<Item extends { readonly id: string }> extends ListedResource<Item> {
  get(id: string): Item | undefined
  /** Answers the view of what was made. */
  create?(body: unknown, baseUrl: string, caller: Caller): object | Promise<object>
  update?(item: Item, body: unknown, caller: Caller): Item | Promise<Item>
  remove?(item: Item, caller: Caller): void
  /** What `POST /<path>/<id>/<name>` does; nothing to tell is answered with 204. */
  readonly actions?: Readonly<
    Record<string, (item: Item, body: unknown, baseUrl: string) => Promise<object | undefined>>
  >
  /** Those actions that read a body; the others leave it. */
  readonly actionsWithBody?: readonly string[]
  /** What `DELETE /<path>/<id>/<name>` does. */
  readonly removals?: Readonly<Record<string, (item: Item) => void>>
}

/** Thrown for an id that nothing has, as far as the caller may know. */
export class ResourceNotFoundError extends Error {
  override readonly name = 'ResourceNotFoundError'
}

/** The routes of one resource. */
export function resourceRoutes<Item extends { readonly id: string }>(
  resource: Resource<Item>,
  lists: ResourceLists,
): Router {
  const { path, actions = {}, actionsWithBody = [], removals = {} } = resource
  const router = Router()
  router.get(`/${path}`, noBody, async (request, response) => {
    response.json(await lists.answer(resource, request, callerOf(response)))
  })
  if (resource.create) {
    router.post(`/${path}`, requiredBody, async (request, response) => {
      refuseQuery(request)
      const caller = callerOf(response)
      const made = await changeOf(response).run(
        async () => (await resource.create?.(request.body, baseUrlOf(request), caller)) ?? {},
        (view) => changedBetween({}, view),
      )
      response.status(201).json(made)
    })
  }
  router.get(`/${path}/:id`, noBody, (request, response) => {
    const item = findItem(resource, request, response)
    response.json(resource.view(item, baseUrlOf(request)))
  })
  if (resource.update) {
    router.patch(`/${path}/:id`, requiredBody, async (request, response) => {
      const item = findItem(resource, request, response)
      const caller = callerOf(response)
      const before = resource.view(item, baseUrlOf(request))
      const view = await changeOf(response).run(
        async () => {
          const updated = (await resource.update?.(item, withoutId(request), caller)) ?? item
          return resource.view(updated, baseUrlOf(request))
        },
        (after) => changedBetween(before, after),
        named(before),
      )
      response.json(view)
    })
  }
  if (resource.remove) {
    router.delete(`/${path}/:id`, noBody, async (request, response) => {
      const item = findItem(resource, request, response)
      const caller = callerOf(response)
      const before = resource.view(item, baseUrlOf(request))
      await changeOf(response).run(
        () => resource.remove?.(item, caller),
        () => changedBetween(before, {}),
        named(before),
      )
      response.status(204).end()
    })
  }
  for (const [name, remove] of Object.entries(removals)) {
    router.delete(`/${path}/:id/${name}`, noBody, async (request, response) => {
      const item = findItem(resource, request, response)
      const about = named(resource.view(item, baseUrlOf(request)))
      await changeOf(response).run(() => remove(item), undefined, about)
      response.status(204).end()
    })
  }
  for (const [name, run] of Object.entries(actions)) {
    // The vendor's client sends the bare id as a body here; nothing in it is of use.
    const body = actionsWithBody.includes(name) ? [requiredBody] : []
    router.post(`/${path}/:id/${name}`, body, async (request: Request, response: Response) => {
      const item = findItem(resource, request, response)
      const about = named(resource.view(item, baseUrlOf(request)))
      const act = () => run(item, request.body, baseUrlOf(request))
      const result = await changeOf(response).run(act, undefined, about)
      if (result) response.json(result)
      else response.status(204).end()
    })
  }
  return router
}

function findItem<Item extends { readonly id: string }>(
  resource: Resource<Item>,
  request: Request,
  response: Response,
): Item {
  refuseQuery(request)
  const id = String(request.params.id)
  if (!id.startsWith(`${resource.prefix}_`)) {
    throw new ServiceError(227, `The id has to begin with ${resource.prefix}_.`)
  }
  const item = resource.get(id)
  if (!item || !sees(callerOf(response), resource.ownerOf(item))) throw new ResourceNotFoundError()
  return item
}

const hasBody = (request: Request) =>
  Number(request.get('content-length') ?? 0) > 0 || request.get('transfer-encoding') !== undefined

const noBody: RequestHandler = (request, _response, next) => {
  if (hasBody(request)) throw new ServiceError(211, `A ${request.method} request has no body.`)
  next()
}

const requiredBody: RequestHandler = (request, response, next) => {
  if (request.get('content-type') === undefined) {
    throw new ServiceError(216, 'Send the body with content-type: application/json.')
  }
  return jsonBody(request, response, next)
}

/** The vendor's client repeats the id of the path in the body of a change. */
function withoutId({ body, params }: Request): unknown {
  if (typeof body !== 'object' || body === null || body.id !== params.id) return body
  const { id: _id, ...change } = body
  return change
}
