import type { Request } from 'express'
import { isResourceId } from '../records/resource-id.ts'
import type { PageRequest } from '../records/resource-table.ts'
import { ServiceError } from '../records/service-error.ts'

const MAX_LIMIT = 100
/** The vendor's own client spells it the second way. */
const BEFORE = ['before_id', 'beforeId']
const KNOWN = ['limit', 'filter', ...BEFORE]

/** Which page of which items is asked for. */
export interface PageQuery extends PageRequest {
  /** The source of a filter. */
  readonly filter?: string | undefined
}

/** Reads which page is asked for of items with such ids. Throws ServiceError 230, 231, 232 or 244. */
export function parsePageQuery({ query }: Request, prefix: string): PageQuery {
  for (const [name, value] of Object.entries(query)) {
    if (!KNOWN.includes(name)) {
      const advice = query.filter === undefined ? '' : ' Inside a filter, write & as %26.'
      throw new ServiceError(231, `Unknown query parameter ${name}.${advice}`)
    }
    if (typeof value !== 'string') {
      throw new ServiceError(232, `The query parameter ${name} is given more than once.`)
    }
  }
  const { limit, filter } = query
  const beforeId = BEFORE.map((name) => query[name]).find((value) => typeof value === 'string')
  // Any text can be compared with ids: a wrong one would look like the end of the list.
  if (beforeId !== undefined && !isResourceId(beforeId, prefix)) {
    throw new ServiceError(
      230,
      `The query parameter before_id must be an id that starts with ${prefix}_.`,
    )
  }
  return {
    limit: parseLimit(limit),
    ...(beforeId === undefined ? {} : { beforeId }),
    ...(typeof filter === 'string' ? { filter } : {}),
  }
}

/** Throws ServiceError 231 for any query parameter. */
export function refuseQuery({ query }: Request): void {
  const [name] = Object.keys(query)
  if (name !== undefined) throw new ServiceError(231, `Unknown query parameter ${name}.`)
}

function parseLimit(value: unknown): number {
  if (value === undefined) return MAX_LIMIT
  const limit = /^\d{1,3}$/.test(String(value)) ? Number(value) : 0
  if (limit >= 1 && limit <= MAX_LIMIT) return limit
  throw new ServiceError(244, `The limit must be a number from 1 to ${MAX_LIMIT}.`)
}
