import { type Request, type RequestHandler, type Response, Router } from 'express'
import { type AuditedChange, type FieldChanges, fieldChanges } from '../../../base/audit.ts'
import { maskedWebhookUrl } from '../../../base/masked-text.ts'
import { changeOf } from '../../../http/change-audit.ts'
import { jsonBody } from '../../../http/json-body.ts'
import { present, ResourceNotFoundError, ServiceError } from '../../records/service-error.ts'
import { type Caller, callerOf, sees } from './caller.ts'
import { baseUrlOf, refuseQuery } from './request.ts'
import type { ListedResource, MissingNode, ResourceLists } from './resource-lists.ts'

/** Fields whose values the audit trail shows, in all resources. */
const OPEN = new Set([
  ...[
    'name',
    'description',
    'domain',
    'addr',
    'url',
    'region',
    'active',
    'owner_id',
    'acl',
    'bindings',
    'quotas',
  ],
  ...['tags', 'provisioned'],
  ...['shared', 'scope', 'owner_only', 'expires_at', 'cidr', 'action', 'ip_policy'],
  'certificate_management_policy',
])
/** Fields that may contain secrets: the audit trail shows only that they changed. */
const CLOSED = new Set(['metadata', 'traffic_policy'])

type View = Readonly<Record<string, unknown>>

/** Audit entry of a change, from the views before and after it. */
export function changedBetween(before: object, after: object): Partial<AuditedChange> {
  // Quotas are news where they change, not where an account begins and ends.
  const isUpdate = 'id' in before && 'id' in after
  const [old, fresh] = [audited(before, isUpdate), audited(after, isUpdate)]
  const name = named('id' in after ? after : before)
  return { ...name, changes: withoutSecretUrls(fieldChanges(old, fresh, OPEN)) }
}

/** Changes of URLs by scheme and host: the path of a webhook's URL may let its holder in. */
export function withoutSecretUrls(changes: FieldChanges): FieldChanges {
  const { url } = changes
  if (!url || url === 'changed') return changes
  const [before, after] = url.map((it) => (typeof it === 'string' ? maskedWebhookUrl(it) : it))
  return { ...changes, url: before === after ? 'changed' : [before, after] }
}

/** Name of an item for people. */
function named(view: object): Partial<AuditedChange> {
  const { id, name, domain, addr, url, cidr, description } = view as View
  const place = typeof url === 'string' ? maskedWebhookUrl(url) : undefined
  const targetName = [name, domain, addr, place, cidr, description].find(
    (text): text is string => typeof text === 'string' && text !== '',
  )
  return { ...(typeof id === 'string' && { targetId: id }), ...(targetName && { targetName }) }
}

function audited(view: object, isUpdate: boolean): View {
  return Object.fromEntries(
    Object.entries(view).filter(
      ([field]) => (OPEN.has(field) && (isUpdate || field !== 'quotas')) || CLOSED.has(field),
    ),
  )
}

/** One kind of thing that the API lists, shows and changes. Verbs that are missing are not served. */
export interface Resource<Item extends { readonly id: string }> extends ListedResource<Item> {
  get(id: string): Item | undefined | Promise<Item | undefined>
  /** The view within the open transaction, if `get` does not see the change before its end. */
  keptView?(id: string, baseUrl: string): object | undefined
  /** Returns the view of the new item. */
  create?(body: unknown, baseUrl: string, caller: Caller): object | Promise<object>
  update?(item: Item, body: unknown, caller: Caller): Item | Promise<Item>
  remove?(item: Item, caller: Caller): Promise<void>
  /** Handler of `POST /<path>/<id>/<name>`. Undefined gives status 204. */
  readonly actions?: Readonly<
    Record<string, (item: Item, body: unknown, baseUrl: string) => Promise<object | undefined>>
  >
  /** Actions that read a body. */
  readonly actionsWithBody?: readonly string[]
  /** Whether all nodes of a site have the item, each with its own figures. */
  isEverywhere?(item: Item): boolean
  /** Error for changes of an item at another node. */
  refuseElsewhere?(view: object): Error
  /** Handler of `DELETE /<path>/<id>/<name>`. */
  readonly removals?: Readonly<Record<string, (item: Item) => Promise<unknown>>>
}

/** The routes of one resource. */
export function resourceRoutes<Item extends { readonly id: string }>(
  resource: Resource<Item>,
  lists: ResourceLists,
): Router {
  const { path, create, update, remove } = resource
  const router = Router()
  router.get(`/${path}`, noBody, async (request, response) => {
    response.json(await lists.answer(resource, request, callerOf(response)))
  })
  router.get(`/${path}/:id`, noBody, async (request, response) => {
    response.json(await viewOf(resource, request, response))
  })
  if (create) {
    router.post(`/${path}`, requiredBody, async (request, response) => {
      refuseQuery(request)
      const baseUrl = baseUrlOf(request)
      const made = await changeOf(response).run(
        async () => create(request.body, baseUrl, callerOf(response)),
        (view) => changedBetween({}, view),
        {},
        (id) => madeAs(resource, id, baseUrl),
      )
      response.status(201).json(made)
    })
  }
  if (update) {
    router.patch(`/${path}/:id`, requiredBody, async (request, response) => {
      const item = await findItem(resource, request, response)
      const baseUrl = baseUrlOf(request)
      const before = resource.view(item, baseUrl)
      const change = withoutId(request)
      const view = await changeOf(response).run(
        async () => resource.view(await update(item, change, callerOf(response)), baseUrl),
        (after) => changedBetween(before, after),
        named(before),
        (id) => changedBetween(before, keptView(resource, id, baseUrl) ?? before),
      )
      response.json(view)
    })
  }
  if (remove) {
    router.delete(`/${path}/:id`, noBody, async (request, response) => {
      const item = await findItem(resource, request, response)
      const before = resource.view(item, baseUrlOf(request))
      const deleted = () => changedBetween(before, {})
      const run = () => remove(item, callerOf(response))
      await changeOf(response).run(run, deleted, named(before), deleted)
      response.status(204).end()
    })
  }
  addActions(router, resource)
  return router
}

/** Routes of further actions on an item. */
function addActions<Item extends { readonly id: string }>(
  router: Router,
  resource: Resource<Item>,
): void {
  const { path, actions = {}, actionsWithBody = [], removals = {} } = resource
  for (const [name, remove] of Object.entries(removals)) {
    router.delete(`/${path}/:id/${name}`, noBody, async (request, response) => {
      const item = await findItem(resource, request, response)
      const about = named(resource.view(item, baseUrlOf(request)))
      const run = () => remove(item)
      await changeOf(response).run(run, undefined, about, () => about)
      response.status(204).end()
    })
  }
  for (const [name, run] of Object.entries(actions)) {
    // The vendor's client sends the bare id as a body here; nothing in it is of use.
    const body = actionsWithBody.includes(name) ? [requiredBody] : []
    router.post(`/${path}/:id/${name}`, body, async (request: Request, response: Response) => {
      const { about, act } = await actionOn(resource, name, run, request, response)
      const result = await changeOf(response).run(act, undefined, about, () => about)
      if (result) response.json(result)
      else response.status(204).end()
    })
  }
}

/** Audit entry of a new item, within the transaction that creates it. */
export function madeAs<Item extends { readonly id: string }>(
  resource: Pick<Resource<Item>, 'get' | 'view' | 'keptView'>,
  id: string,
  baseUrl: string,
): Partial<AuditedChange> {
  return changedBetween({}, keptView(resource, id, baseUrl) ?? { id })
}

/** The view of an item within the open transaction. */
function keptView<Item extends { readonly id: string }>(
  resource: Pick<Resource<Item>, 'get' | 'view' | 'keptView'>,
  id: string,
  baseUrl: string,
): object | undefined {
  if (resource.keptView) return resource.keptView(id, baseUrl)
  const item = resource.get(id)
  return item === undefined || item instanceof Promise ? undefined : resource.view(item, baseUrl)
}

async function lookUp<Item extends { readonly id: string }>(
  resource: Resource<Item>,
  request: Request,
  response: Response,
): Promise<Item | undefined> {
  refuseQuery(request)
  const id = String(request.params.id)
  if (!id.startsWith(`${resource.prefix}_`)) {
    throw new ServiceError(227, `The id must start with ${resource.prefix}_.`)
  }
  const item = await resource.get(id)
  return item && sees(callerOf(response), resource.ownerOf(item)) ? item : undefined
}

/** The item to change. Other nodes have only items of agents, which cannot be changed here. */
async function findItem<Item extends { readonly id: string }>(
  resource: Resource<Item>,
  request: Request,
  response: Response,
): Promise<Item> {
  const item = await lookUp(resource, request, response)
  if (!item && resource.elsewhere) {
    const view = await viewOf(resource, request, response)
    throw resource.refuseElsewhere?.(view) ?? new ResourceNotFoundError()
  }
  return present(item)
}

/** The view of an item, here or at another node. Items of all nodes are merged. */
async function viewOf<Item extends { readonly id: string }>(
  resource: Resource<Item>,
  request: Request,
  response: Response,
): Promise<object> {
  const { elsewhere, combine } = resource
  const item = await lookUp(resource, request, response)
  const own = item && resource.view(item, baseUrlOf(request), callerOf(response))
  if (!elsewhere || (item && !resource.isEverywhere?.(item))) return present(own)
  const asked = { viewer: callerOf(response), baseUrl: baseUrlOf(request) }
  const { found, missing } = await elsewhere.find(String(request.params.id), asked)
  const [first, ...rest] = [...(own ? [own] : []), ...found.map(({ view }) => view)]
  if (first) return combine?.([first, ...rest]) ?? first
  throw missing.length > 0 ? notAnswered(missing) : new ResourceNotFoundError()
}

/** An action on an item, here or at another node. */
async function actionOn<Item extends { readonly id: string }>(
  resource: Resource<Item>,
  name: string,
  run: (item: Item, body: unknown, baseUrl: string) => Promise<object | undefined>,
  request: Request,
  response: Response,
) {
  const { elsewhere } = resource
  const baseUrl = baseUrlOf(request)
  const item = await lookUp(resource, request, response)
  if (item || !elsewhere) {
    const here = present(item)
    const act = () => run(here, request.body, baseUrl)
    return { about: named(resource.view(here, baseUrl)), act }
  }
  const viewer = callerOf(response)
  const id = String(request.params.id)
  const { found, missing } = await elsewhere.find(id, { viewer, baseUrl })
  const [there] = found
  if (!there) throw missing.length > 0 ? notAnswered(missing) : new ResourceNotFoundError()
  const act = async () => {
    await elsewhere.act(there.nodeId, id, name, viewer)
    return undefined
  }
  return { about: named(there.view), act }
}

function notAnswered(missing: readonly MissingNode[]): ServiceError {
  const names = missing.map(({ name }) => name).join(', ')
  return new ServiceError(
    840,
    `The resource was not found here, and ${names} does not answer. Try again.`,
  )
}

const hasBody = (request: Request) =>
  Number(request.get('content-length') ?? 0) > 0 || request.get('transfer-encoding') !== undefined

const noBody: RequestHandler = (request, _response, next) => {
  if (hasBody(request))
    throw new ServiceError(211, `A ${request.method} request must not have a body.`)
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
