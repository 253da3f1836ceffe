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

/** An item as it is answered. */
export interface View {
  readonly id: string
}

/** What one node has of a page, newest first: all that it has from `nextBefore` on. */
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

/** What lives in the memory of the other nodes. They have 2 s to say it. */
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
  /** Throws what the other node refuses with, and a ResourceNotFoundError when it is gone there. */
  act(nodeId: string, id: string, action: string, viewer: Viewer): Promise<void>
}

/**
 * One page of those of all nodes. What one of them has not looked at yet, because it has more than a
 * page or had no time, comes with the next page: nothing older than that is in this one.
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

/** A page of things that live in memory only, newest first like those in the database. */
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
/** What a turn of filtering takes before everything else has its turn. */
const TURN_MS = 2
/** What one request may take for filtering; it answers then with what it has found. */
const MAX_WORK_MS = 500

/** What can be listed. */
export interface ListedResource<Item extends { readonly id: string }> {
  /** First part of its paths, such as `reserved_domains`. */
  readonly path: string
  /** Its ids start with it and an underscore. */
  readonly prefix: string
  /** Key of the list in a list answer. */
  readonly collection: string
  /** What `view` makes; filters know its fields. */
  readonly schema: z.ZodObject
  /** Newest first, at most `limit`. */
  page(request: PageRequest): readonly Item[] | Promise<readonly Item[]>
  /** Without a viewer it has only what the item's own account may see. */
  view(item: Item, baseUrl: string, viewer?: Viewer): View
  /** The bot user whose account has it; null for the account of the gateway's owner. */
  ownerOf(item: Item): string | null
  /** Where each node has some of them: those of the others. */
  readonly elsewhere?: Elsewhere | undefined
  /** One view of something that several nodes have. */
  combine?(views: readonly [View, ...View[]]): View
}

/** Makes the answers of all lists, page by page. Those that filter take turns. */
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

  /** What this node has of a page. Throws ServiceError 250. */
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
   * The next items that the caller sees and that match. Looks on until it knows whether there is
   * one more than asked for; when that takes too long, it answers what it has, and the next page
   * begins where it stopped.
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
      // Who waits for other nodes does no work.
      if (read instanceof Promise) startedAt = this.#clock.monotonic()
      if (items.length === 0) return { views, nextBefore: undefined }
      for (const item of items) {
        const view = sees(viewer, resource.ownerOf(item)) && resource.view(item, baseUrl, viewer)
        if (view && (!filter || matches(filter, view))) {
          // Not the id before this one: that may be of something the caller must not know of.
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
