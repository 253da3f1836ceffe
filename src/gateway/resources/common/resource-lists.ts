import type { Request } from 'express'
import type * as z from 'zod'
import type { Clock } from '../../../base/clock.ts'
import { Scheduler } from '../../../base/scheduler.ts'
import {
  EvaluationError,
  ExpressionProblem,
} from '../../../policy/expression/expression-problem.ts'
import type { PageRequest } from '../../records/resource-table.ts'
import { ServiceError } from '../../records/service-error.ts'
import { type Fields, fieldKinds } from '../filter/fields.ts'
import { type Filter, FilterLanguage } from '../filter/filter.ts'
import { type Caller, sees, type Viewer } from './caller.ts'
import { baseUrlOf, type PageQuery, parsePageQuery } from './request.ts'

/** An item in a response. */
export interface View {
  readonly id: string
}

/** Items of a page at one node, newest first: all of its items from `nextBefore` on. */
export interface ElsewherePage {
  readonly views: readonly View[]
  /** Undefined: it has nothing older. */
  readonly nextBefore: string | undefined
}

/** A node that did not answer. */
export interface MissingNode {
  readonly id: string
  readonly name: string
}

interface Asked {
  readonly viewer: Viewer
  readonly baseUrl: string
}

/** Items in the memory of other nodes, which have 2 s to answer. */
export interface Elsewhere {
  page(
    query: PageQuery,
    asked: Asked,
  ): Promise<{ readonly pages: readonly ElsewherePage[]; readonly missing: readonly MissingNode[] }>
  find(
    id: string,
    asked: Asked,
  ): Promise<{
    readonly found: readonly { readonly nodeId: string; readonly view: View }[]
    readonly missing: readonly MissingNode[]
  }>
  /** Throws the refusal of the other node, and a ResourceNotFoundError if the item is gone there. */
  act(nodeId: string, id: string, action: string, viewer: Viewer): Promise<void>
}

/**
 * Merges pages of all nodes into one. A node that has more items than a page, or ran out of time, may have
 * further items. So no item older than its unread rest is in this page.
 */
export function mergePages(
  pages: readonly ElsewherePage[],
  limit: number,
  combine: (views: readonly [View, ...View[]]) => View,
): ElsewherePage {
  const ends = pages.flatMap(({ nextBefore }) => (nextBefore === undefined ? [] : [nextBefore]))
  const from = ends.sort().at(-1)
  const byId = new Map<string, [View, ...View[]]>()
  for (const view of pages.flatMap(({ views }) => views)) {
    if (from !== undefined && view.id < from) continue
    const same = byId.get(view.id)
    if (same) same.push(view)
    else byId.set(view.id, [view])
  }
  const all = [...byId].sort(([a], [b]) => (a < b ? 1 : -1)).map(([, same]) => combine(same))
  const views = all.slice(0, limit)
  return { views, nextBefore: all.length > limit ? views.at(-1)?.id : from }
}

/** A page of items in memory, newest first as in the database. */
export function livePage<Item extends { readonly id: string }>(
  items: Iterable<Item>,
  { beforeId, limit }: PageRequest,
): Item[] {
  return [...items]
    .filter(({ id }) => beforeId === undefined || id < beforeId)
    .sort((a, b) => (a.id < b.id ? 1 : -1))
    .slice(0, limit)
}

/** Items that are read at once to be filtered: about 1 ms. */
const BATCH = 100
/** Filtering time until other work gets a turn. */
const TURN_MS = 2
/** Filtering time of one request. It then returns the results so far. */
const MAX_WORK_MS = 500

/** A resource with a list. */
export interface ListedResource<Item extends { readonly id: string }> {
  /** First part of its paths, such as `reserved_domains`. */
  readonly path: string
  /** Its ids start with it and an underscore. */
  readonly prefix: string
  /** Key of the list in a list answer. */
  readonly collection: string
  /** Schema of `view`, from which filters know the fields. */
  readonly schema: z.ZodObject
  /** Newest first, at most `limit`. */
  page(request: PageRequest): readonly Item[] | Promise<readonly Item[]>
  /** Without a viewer, only fields for the item's own account. */
  view(item: Item, baseUrl: string, viewer?: Viewer): View
  /** Bot user of the item's account; null for the account of the gateway's owner. */
  ownerOf(item: Item): string | null
  /** Items of other nodes, if each node has some. */
  readonly elsewhere?: Elsewhere | undefined
  /** One view of something that several nodes have. */
  combine?(views: readonly [View, ...View[]]): View
}

/** Makes the pages of all lists. Lists with filters take turns. */
export class ResourceLists {
  readonly #clock: Clock
  readonly #language: FilterLanguage
  readonly #scheduler = new Scheduler()
  readonly #fields = new Map<z.ZodObject, Fields>()

  constructor(clock: Clock) {
    this.#clock = clock
    this.#language = new FilterLanguage(clock)
  }

  /**
   * The answer to `GET /<path>`. Throws ServiceError 230, 231, 232, 244 or 250. A node of the site that
   * has some of it and does not answer is named in it.
   */
  async answer<Item extends { readonly id: string }>(
    resource: ListedResource<Item>,
    request: Request,
    caller: Caller,
  ): Promise<object> {
    const query = parsePageQuery(request, resource.prefix)
    const baseUrl = baseUrlOf(request)
    const uri = `${baseUrl}/${resource.path}`
    const { elsewhere } = resource
    const asked = { viewer: caller, baseUrl }
    const [own, others] = await Promise.all([
      this.page(resource, query, asked, () => request.socket.destroyed),
      elsewhere?.page(query, asked),
    ])
    const { views, nextBefore } = others
      ? mergePages([own, ...others.pages], query.limit, ([first, ...rest]) =>
          rest.length > 0 ? (resource.combine?.([first, ...rest]) ?? first) : first,
        )
      : own
    const { filter } = query
    const kept = filter === undefined ? '' : `&filter=${encodeURIComponent(filter)}`
    const nextUri = `${uri}?before_id=${nextBefore}&limit=${query.limit}${kept}`
    return {
      uri,
      next_page_uri: nextBefore === undefined ? null : nextUri,
      [resource.collection]: views,
      ...(others && others.missing.length > 0 && { missing_nodes: others.missing }),
    }
  }

  /** Items of a page at this node. Throws ServiceError 250. */
  async page<Item extends { readonly id: string }>(
    resource: ListedResource<Item>,
    { filter: source, ...query }: PageQuery,
    { viewer, baseUrl }: Asked,
    isOver = () => false,
  ): Promise<ElsewherePage> {
    if (source === undefined && !viewer.isOwnerOnly)
      return wholePage(resource, query, { viewer, baseUrl })
    const filter = source === undefined ? undefined : this.#compile(source, resource)
    return this.#chosenPage(resource, query, { viewer, filter, baseUrl, isOver })
  }

  #compile(source: string, { schema }: { readonly schema: z.ZodObject }): Filter {
    const fields = this.#fields.get(schema) ?? fieldKinds(schema)
    this.#fields.set(schema, fields)
    try {
      return this.#language.compile(source, fields)
    } catch (error) {
      if (!(error instanceof ExpressionProblem)) throw error
      const place = error.offset === undefined ? '' : ` at character ${error.offset + 1}`
      throw new ServiceError(250, `The filter is not valid${place}: ${error.message}.`)
    }
  }

  /**
   * The next items that the caller can see and that match. Continues until it knows whether there is one more
   * item than the limit. After the time limit it returns its results, and the next page continues there.
   */
  async #chosenPage<Item extends { readonly id: string }>(
    resource: ListedResource<Item>,
    { limit, beforeId }: PageRequest,
    {
      viewer,
      filter,
      baseUrl,
      isOver,
    }: Asked & { filter: Filter | undefined; isOver: () => boolean },
  ): Promise<ElsewherePage> {
    const views: View[] = []
    let before = beforeId
    let last = beforeId
    let workMs = 0
    while (workMs < MAX_WORK_MS && !isOver()) {
      await this.#scheduler.yield()
      let startedAt = this.#clock.monotonic()
      const read = resource.page({ limit: BATCH, beforeId: before })
      const items = read instanceof Promise ? await read : read
      // Waiting for other nodes is no filtering work.
      if (read instanceof Promise) startedAt = this.#clock.monotonic()
      if (items.length === 0) return { views, nextBefore: undefined }
      for (const item of items) {
        const view = sees(viewer, resource.ownerOf(item)) && resource.view(item, baseUrl, viewer)
        if (view && (!filter || matches(filter, view))) {
          // The id before it may belong to an item that the caller must not see.
          if (views.length === limit) return { views, nextBefore: last }
          views.push(view)
          last = item.id
        }
        before = item.id
        if (this.#clock.monotonic() - startedAt >= TURN_MS) break
      }
      workMs += this.#clock.monotonic() - startedAt
    }
    return { views, nextBefore: before }
  }
}

async function wholePage<Item extends { readonly id: string }>(
  resource: ListedResource<Item>,
  { limit, beforeId }: PageRequest,
  { viewer, baseUrl }: Asked,
): Promise<ElsewherePage> {
  // One more than asked for tells whether there is a next page.
  const found = await resource.page({ limit: limit + 1, beforeId })
  const items = found.slice(0, limit)
  return {
    views: items.map((item) => resource.view(item, baseUrl, viewer)),
    nextBefore: found.length > limit ? items.at(-1)?.id : undefined,
  }
}

function matches(filter: Filter, view: object): boolean {
  try {
    return filter.matches(view)
  } catch (error) {
    if (!(error instanceof EvaluationError)) throw error
    throw new ServiceError(250, 'The filter takes too long. Make it simpler.')
  }
}
