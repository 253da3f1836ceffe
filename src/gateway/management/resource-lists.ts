import type { Request } from 'express'
import type * as z from 'zod'
import type { Clock } from '../../base/clock.ts'
import { Scheduler } from '../../base/scheduler.ts'
import { EvaluationError } from '../../policy/expression/evaluation-error.ts'
import { ExpressionProblem } from '../../policy/expression/expression-problem.ts'
import type { PageRequest } from '../records/resource-table.ts'
import { ServiceError } from '../records/service-error.ts'
import { baseUrlOf } from './body.ts'
import { type Caller, sees, type Viewer } from './caller.ts'
import { fieldKinds } from './filter/field-kinds.ts'
import { type Filter, FilterLanguage } from './filter/filter.ts'
import type { Fields } from './filter/filter-kind.ts'
import { type PageQuery, parsePageQuery } from './page-query.ts'
import {
  type Asked,
  type Elsewhere,
  type ElsewherePage,
  mergePages,
  type View,
} from './site/site-page.ts'

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
