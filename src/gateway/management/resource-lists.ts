import type { Request } from 'express'
import type * as z from 'zod'
import type { Clock } from '../../base/clock.ts'
import { Scheduler } from '../../base/scheduler.ts'
import { EvaluationError } from '../../policy/expression/evaluation-error.ts'
import { ExpressionProblem } from '../../policy/expression/expression-problem.ts'
import type { PageRequest } from '../records/resource-table.ts'
import { ServiceError } from '../records/service-error.ts'
import { baseUrlOf } from './body.ts'
import { type Caller, sees } from './caller.ts'
import { fieldKinds } from './filter/field-kinds.ts'
import { type Filter, FilterLanguage } from './filter/filter.ts'
import type { Fields } from './filter/filter-kind.ts'
import { parsePageQuery } from './page-query.ts'

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
  page(request: PageRequest): readonly Item[]
  view(item: Item, baseUrl: string): object
  /** The bot user whose account has it; null for the account of the gateway's owner. */
  ownerOf(item: Item): string | null
}

interface Page {
  readonly views: readonly object[]
  /** Where the next page begins; undefined when there is none. */
  readonly nextBefore: string | undefined
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

  /** The answer to `GET /<path>`. Throws ServiceError 230, 231, 232, 244 or 250. */
  async answer<Item extends { readonly id: string }>(
    resource: ListedResource<Item>,
    request: Request,
    caller: Caller,
  ): Promise<object> {
    const { filter, ...query } = parsePageQuery(request, resource.prefix)
    const baseUrl = baseUrlOf(request)
    const uri = `${baseUrl}/${resource.path}`
    const { views, nextBefore } =
      filter === undefined && !caller.isOwnerOnly
        ? wholePage(resource, query, baseUrl)
        : await this.#chosenPage(resource, query, request, {
            caller,
            filter: filter === undefined ? undefined : this.#compile(filter, resource),
          })
    const kept = filter === undefined ? '' : `&filter=${encodeURIComponent(filter)}`
    const nextUri = `${uri}?before_id=${nextBefore}&limit=${query.limit}${kept}`
    return {
      uri,
      next_page_uri: nextBefore === undefined ? null : nextUri,
      [resource.collection]: views,
    }
  }

  #compile(source: string, { schema }: { readonly schema: z.ZodObject }): Filter {
    const fields = this.#fields.get(schema) ?? fieldKinds(schema)
    this.#fields.set(schema, fields)
    try {
      return this.#language.compile(source, fields)
    } catch (error) {
      if (!(error instanceof ExpressionProblem)) throw error
      const place = error.offset === undefined ? '' : ` at character ${error.offset + 1}`
      throw new ServiceError(250, `The filter cannot be used${place}: ${error.message}.`)
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
    request: Request,
    { caller, filter }: { caller: Caller; filter: Filter | undefined },
  ): Promise<Page> {
    const baseUrl = baseUrlOf(request)
    const views: object[] = []
    let before = beforeId
    let last = beforeId
    let workMs = 0
    while (workMs < MAX_WORK_MS && !request.socket.destroyed) {
      await this.#scheduler.yield()
      const startedAt = this.#clock.monotonic()
      const items = resource.page({ limit: BATCH, beforeId: before })
      if (items.length === 0) return { views, nextBefore: undefined }
      for (const item of items) {
        const view = sees(caller, resource.ownerOf(item)) && resource.view(item, baseUrl)
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

function wholePage<Item extends { readonly id: string }>(
  resource: ListedResource<Item>,
  { limit, beforeId }: PageRequest,
  baseUrl: string,
): Page {
  // One more than asked for tells whether there is a next page.
  const found = resource.page({ limit: limit + 1, beforeId })
  const items = found.slice(0, limit)
  return {
    views: items.map((item) => resource.view(item, baseUrl)),
    nextBefore: found.length > limit ? items.at(-1)?.id : undefined,
  }
}

function matches(filter: Filter, view: object): boolean {
  try {
    return filter.matches(view)
  } catch (error) {
    if (!(error instanceof EvaluationError)) throw error
    throw new ServiceError(250, 'The filter takes too long: let it ask for less at once.')
  }
}
