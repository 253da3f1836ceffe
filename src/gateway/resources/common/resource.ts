import type { Request, RequestHandler, Response } from 'express'
import * as z from 'zod'
import { type AuditedChange, type FieldChanges, fieldChanges } from '../../../base/audit.ts'
import { maskedWebhookUrl } from '../../../base/masked-text.ts'
import { changeOf } from '../../../http/change-audit.ts'
import { type BodyReader, jsonBody, largeJsonBody, limited } from '../../../http/json-body.ts'
import type { NamedSchema, Route } from '../../../http/routes.ts'
import { present, ResourceNotFoundError, ServiceError } from '../../records/service-error.ts'
import { type Caller, callerOf, sees } from './caller.ts'
import { baseUrlOf, ListQuery, parseBody, refuseQuery } from './request.ts'
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
  ...['tags', 'provisioned', 'max_uses', 'state', 'kind', 'reserved_domain'],
  ...['shared', 'scope', 'owner_only', 'expires_at', 'cidr', 'action', 'ip_policy'],
  ...['vault_name', 'allow', 'value_set_at'],
  ...['addresses', 'event_types', 'offline_s', 'quiet_times', 'time_zone'],
  ...['certificate_management_policy', 'certificate', 'certificate_id'],
  ...['subject_alternative_names', 'subject_common_name', 'issuer_common_name', 'not_after'],
])
/** Fields that may contain secrets: the audit trail shows only that they changed. */
const CLOSED = new Set(['metadata', 'traffic_policy', 'html'])

/** Longer names of refused items are cut. */
const MAX_NAME = 255

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

/**
 * Name of the item that a body asks for, for the row of a refusal. The body is unchecked: its `id` is ignored,
 * and so is a URL that cannot be masked.
 */
function namedBy(body: unknown): Partial<AuditedChange> {
  if (typeof body !== 'object' || body === null) return {}
  const { url, kind, ...rest } = body as View
  const isUrl = typeof url === 'string' && URL.canParse(url)
  const { targetName = kind } = named({ ...rest, ...(isUrl && { url }) })
  return typeof targetName === 'string' ? { targetName: targetName.slice(0, MAX_NAME) } : {}
}

function audited(view: object, isUpdate: boolean): View {
  return Object.fromEntries(
    Object.entries(view).filter(
      ([field]) => (OPEN.has(field) && (isUpdate || field !== 'quotas')) || CLOSED.has(field),
    ),
  )
}

/** A handler and the schema that its body is parsed with. The OpenAPI document shows the same schema. */
export interface BodyHandler<About, Result> {
  readonly body: NamedSchema
  run(body: unknown, about: About): Result
}

export function withBody<Body, About, Result>(
  body: NamedSchema<Body>,
  run: (body: Body, about: About) => Result,
): BodyHandler<About, Result> {
  const [schema = z.never()] = Object.values(body)
  return { body, run: (given, about) => run(parseBody(schema, given), about) }
}

/** `POST /<path>/{id}/<name>`. */
export interface Action<Item> {
  readonly summary: string
  /** Response body. Without it, the status is 204. */
  readonly answer?: NamedSchema
  /** Required body of the request. */
  readonly body?: NamedSchema
  run(body: unknown, about: ItemOfRequest<Item>): Promise<object | undefined>
}

export interface ItemOfRequest<Item> {
  readonly item: Item
  readonly baseUrl: string
}

/** `DELETE /<path>/{id}/<name>`. */
interface Removal<Item> {
  readonly summary: string
  run(item: Item): Promise<unknown>
}

/**
 * One kind of thing that the API lists, shows and changes. Its routes, its entries in the audit trail and its
 * documentation follow from this declaration. Verbs that are missing are not served.
 */
export interface Resource<Item extends AnyItem> extends ListedResource<Item> {
  /** Name of its schema in the OpenAPI document, such as `ReservedDomain`. */
  readonly noun: string
  /** Description for the OpenAPI document. */
  readonly about?: string
  get(id: string): Item | undefined | Promise<Item | undefined>
  /** The view within the open transaction, if `get` does not see the change before its end. */
  keptView?(id: string, baseUrl: string): object | undefined
  /** Throws if the caller must not create, change or delete the item. Called before the body is parsed. */
  checkChange?(caller: Caller, item?: Item): void
  /** Returns the view of the new item. */
  readonly create?: BodyHandler<
    { readonly caller: Caller; readonly baseUrl: string },
    object | Promise<object>
  >
  readonly update?: BodyHandler<
    { readonly item: Item; readonly caller: Caller },
    Item | Promise<Item>
  >
  remove?(item: Item): Promise<void>
  /** Largest body of create and update, in bytes; default: 64 KiB. */
  readonly maxBodyBytes?: number
  /** Summary of `remove` in the OpenAPI document. */
  readonly removal?: string
  readonly actions?: Readonly<Record<string, Action<Item>>>
  readonly removals?: Readonly<Record<string, Removal<Item>>>
  /** Whether all nodes of a site have the item, each with its own figures. */
  isEverywhere?(item: Item): boolean
  /** Error for changes of an item at another node. */
  refuseElsewhere?(view: object): Error
}

/** What all items have. */
export interface AnyItem {
  readonly id: string
}

/** The routes of one resource. */
export function resourceRoutes<Item extends AnyItem>(
  resource: Resource<Item>,
  lists: ResourceLists,
): Route[] {
  const { path, about, create, update, remove, removal = 'Delete' } = resource
  const { actions = {}, removals = {} } = resource
  const all = `/${path}`
  const one = `${all}/{id}`
  const requiredBody = bodyUpTo(resource.maxBodyBytes)
  const routes: (Route | undefined)[] = [
    {
      route: `GET ${all}`,
      id: `${path}_list`,
      summary: 'List, newest first',
      about,
      query: ListQuery,
      answers: { 200: { means: 'A page of the list.', schema: listSchema(resource) } },
      before: [noBody],
      handle: async (request, response) => {
        response.json(await lists.answer(resource, request, callerOf(response)))
      },
    },
    create && {
      route: `POST ${all}`,
      id: `${path}_create`,
      summary: 'Create',
      body: create.body,
      hasLocation: true,
      answers: { 201: itemOf(resource) },
      before: [requiredBody],
      handle: async (request, response) => {
        refuseQuery(request)
        const asked = { body: request.body, baseUrl: baseUrlOf(request) }
        const view = await createItem(resource, create, asked, response)
        response
          .status(201)
          .location(`${request.baseUrl}${all}/${idOf(view)}`)
          .json(view)
      },
    },
    {
      route: `GET ${one}`,
      id: `${path}_get`,
      summary: 'Get',
      answers: { 200: itemOf(resource) },
      before: [noBody],
      handle: async (request, response) => {
        response.json(await viewOf(resource, request, response))
      },
    },
    update && {
      route: `PATCH ${one}`,
      id: `${path}_update`,
      summary: 'Change the given fields',
      body: update.body,
      answers: { 200: itemOf(resource) },
      before: [requiredBody],
      handle: async (request, response) => {
        response.json(await updateItem(resource, update, request, response))
      },
    },
    remove && {
      route: `DELETE ${one}`,
      id: `${path}_delete`,
      summary: removal,
      answers: { 204: { means: 'Deleted.' } },
      before: [noBody],
      handle: async (request, response) => {
        const item = await findItem(resource, request, response)
        const before = resource.view(item, baseUrlOf(request))
        const deleted = () => changedBetween(before, {})
        const run = async () => {
          resource.checkChange?.(callerOf(response), item)
          await remove(item)
        }
        await changeOf(response).run(run, deleted, named(before), deleted)
        response.status(204).end()
      },
    },
    ...Object.entries(removals).map((entry) => removalRoute(resource, entry)),
    ...Object.entries(actions).map((entry) => actionRoute(resource, entry)),
  ]
  return routes.filter((route) => route !== undefined)
}

/** Creates an item and records it in the audit trail. */
export function createItem<Item extends AnyItem>(
  resource: Resource<Item>,
  create: NonNullable<Resource<Item>['create']>,
  { body, baseUrl }: { readonly body: unknown; readonly baseUrl: string },
  response: Response,
  tried: Partial<AuditedChange> = {},
): Promise<object> {
  const caller = callerOf(response)
  return changeOf(response).run(
    async () => {
      resource.checkChange?.(caller)
      return create.run(body, { caller, baseUrl })
    },
    (view) => changedBetween({}, view),
    { ...tried, ...namedBy(body) },
    (id) => changedBetween({}, keptView(resource, id, baseUrl) ?? { id }),
  )
}

async function updateItem<Item extends AnyItem>(
  resource: Resource<Item>,
  update: NonNullable<Resource<Item>['update']>,
  request: Request,
  response: Response,
): Promise<object> {
  const item = await findItem(resource, request, response)
  const caller = callerOf(response)
  const baseUrl = baseUrlOf(request)
  const before = resource.view(item, baseUrl)
  const change = withoutId(request)
  return changeOf(response).run(
    async () => {
      resource.checkChange?.(caller, item)
      return resource.view(await update.run(change, { item, caller }), baseUrl)
    },
    (after) => changedBetween(before, after),
    named(before),
    (id) => changedBetween(before, keptView(resource, id, baseUrl) ?? before),
  )
}

function removalRoute<Item extends AnyItem>(
  resource: Resource<Item>,
  [name, { summary, run }]: [string, Removal<Item>],
): Route {
  const { path } = resource
  return {
    route: `DELETE /${path}/{id}/${name}`,
    id: `${path}_delete_${name}`,
    summary,
    answers: { 204: { means: 'Done.' } },
    before: [noBody],
    handle: async (request, response) => {
      const item = await findItem(resource, request, response)
      const about = named(resource.view(item, baseUrlOf(request)))
      await changeOf(response).run(
        () => run(item),
        undefined,
        about,
        () => about,
      )
      response.status(204).end()
    },
  }
}

function actionRoute<Item extends AnyItem>(
  resource: Resource<Item>,
  [name, action]: [string, Action<Item>],
): Route {
  const { path } = resource
  const { summary, answer: schema, body } = action
  return {
    route: `POST /${path}/{id}/${name}`,
    id: `${path}_${name}`,
    summary,
    ...(body && { body }),
    answers: schema ? { 200: { means: 'Done.', schema } } : { 204: { means: 'Done.' } },
    before: [
      // The vendor's client sends the bare id as a body to actions without one.
      ...(body ? [bodyUpTo(undefined)] : []),
    ],
    handle: async (request: Request, response: Response) => {
      const { about, act } = await actionOn(resource, [name, action], request, response)
      const result = await changeOf(response).run(act, undefined, about, () => about)
      if (result) response.json(result)
      else response.status(204).end()
    },
  }
}

const idOf = (view: object) => ('id' in view ? String(view.id) : '')

function itemOf<Item extends AnyItem>({ noun, schema }: Resource<Item>) {
  return { means: 'The resource.', schema: { [noun]: schema } }
}

const MissingNodes = z
  .array(z.strictObject({ id: z.string(), name: z.string() }))
  .optional()
  .describe('nodes that did not answer; their items are missing from the list')

/** Schema of a list. `reserved_domains` has the schema `ReservedDomainsList`. */
function listSchema<Item extends AnyItem>(resource: Resource<Item>): NamedSchema {
  const { path, collection, schema, elsewhere } = resource
  const plural = path.replace(/(?:^|_)(\w)/g, (_, letter: string) => letter.toUpperCase())
  const list = z.strictObject({
    uri: z.string(),
    next_page_uri: z.string().nullable(),
    [collection]: z.array(schema),
    ...(elsewhere && { missing_nodes: MissingNodes }),
  })
  return { [`${plural}List`]: list }
}

/** The view of an item within the open transaction. */
function keptView<Item extends AnyItem>(
  resource: Pick<Resource<Item>, 'get' | 'view' | 'keptView'>,
  id: string,
  baseUrl: string,
): object | undefined {
  if (resource.keptView) return resource.keptView(id, baseUrl)
  const item = resource.get(id)
  return item === undefined || item instanceof Promise ? undefined : resource.view(item, baseUrl)
}

async function lookUp<Item extends AnyItem>(
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
async function findItem<Item extends AnyItem>(
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
async function viewOf<Item extends AnyItem>(
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
async function actionOn<Item extends AnyItem>(
  resource: Resource<Item>,
  [name, { run }]: [string, Action<Item>],
  request: Request,
  response: Response,
) {
  const { elsewhere } = resource
  const baseUrl = baseUrlOf(request)
  const item = await lookUp(resource, request, response)
  if (item || !elsewhere) {
    const here = present(item)
    const act = () => run(request.body ?? {}, { item: here, baseUrl })
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

/** Requires a JSON body. */
function bodyUpTo(maxBytes: number | undefined): BodyReader {
  const read = maxBytes === undefined ? jsonBody : largeJsonBody(maxBytes)
  return limited(read.maxBytes, (request, response, next) => {
    if (request.get('content-type') === undefined) {
      throw new ServiceError(216, 'Send the body with content-type: application/json.')
    }
    return read(request, response, next)
  })
}

/** The vendor's client repeats the id of the path in the body of a change. */
function withoutId({ body, params }: Request): unknown {
  if (typeof body !== 'object' || body === null || body.id !== params.id) return body
  const { id: _id, ...change } = body
  return change
}
