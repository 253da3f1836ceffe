import type { Request } from 'express'
import * as z from 'zod'
import { describe, meantText, parseFields, valueAt } from '../../../http/parse.ts'
import { isResourceId } from '../../records/resource-id.ts'
import type { PageRequest } from '../../records/resource-table.ts'
import { ServiceError } from '../../records/service-error.ts'

/** A time in an answer. Its format tells filters that it is compared with times. */
export const Timestamp = z.string().meta({ format: 'date-time' })

/** Milliseconds since the epoch as RFC 3339 in UTC, whole seconds: `2030-01-01T00:00:00Z`. */
export function timestamp(ms: number): string {
  return `${new Date(ms).toISOString().slice(0, 19)}Z`
}

const MAX_LIMIT = 100
/** Unknown fields that an error names. */
const MAX_KEYS = 10
/** Characters of a value that an error shows. */
const MAX_SHOWN = 64
/** The vendor's own client spells it the second way. */
const BEFORE = ['before_id', 'beforeId']
const KNOWN = ['limit', 'filter', ...BEFORE]

/** Query of a list as the OpenAPI document shows it. */
export const ListQuery = z.strictObject({
  limit: z.int().min(1).max(MAX_LIMIT).optional().describe(`page size [${MAX_LIMIT}]`),
  before_id: z.string().optional().describe('only items created before this item'),
  filter: z
    .string()
    .min(1)
    .max(4_096)
    .optional()
    .describe('only items for which this CEL expression is true, such as obj.id == "cr_1"'),
})

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
      const meant = meantText(name, KNOWN)
      throw new ServiceError(231, `Unknown query parameter ${name}.${meant}${advice}`)
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
  if (name === undefined) return
  throw new ServiceError(
    231,
    `Unknown query parameter ${name}. This request has no query parameters.`,
  )
}

function parseLimit(value: unknown): number {
  if (value === undefined) return MAX_LIMIT
  const limit = /^\d{1,3}$/.test(String(value)) ? Number(value) : 0
  if (limit >= 1 && limit <= MAX_LIMIT) return limit
  throw new ServiceError(244, `The limit must be a number from 1 to ${MAX_LIMIT}.`)
}

/** Reads the body of a request. Throws ServiceError 214 for an unknown field, 215 for a bad one. */
export function parseBody<T>(schema: z.ZodType<T>, body: unknown): T {
  const { result, adviceFor } = parseFields(schema, body)
  if (result.success) return result.data
  const [issue] = result.error.issues
  if (issue?.code === 'unrecognized_keys') {
    const [first = '', ...others] = issue.keys.slice(0, MAX_KEYS)
    const names = [first, ...others].map((key) => [...issue.path, key].join('.')).join(', ')
    const meant = adviceFor(first, issue)
    throw new ServiceError(214, `The body has unknown fields: ${names}.${meant}`)
  }
  if (!issue) throw new ServiceError(215, 'The body is not valid.')
  const words = describe(issue, body).replace(/^(?=must |is required$)/, 'it ')
  throw new ServiceError(215, `${placeOf(issue, body)} is not valid: ${words}.`)
}

/** The field of a mistake. An entry of a list is named by its text, or its number from 1. */
function placeOf({ path }: z.core.$ZodIssue, body: unknown): string {
  const at = path.at(-1)
  if (typeof at !== 'number') return `The field ${path.join('.') || 'body'}`
  const value = valueAt(body, path)
  const text = typeof value === 'string' ? JSON.stringify(value.slice(0, MAX_SHOWN)) : at + 1
  return `The entry ${text} of the field ${path.slice(0, -1).join('.')}`
}

/** Throws ServiceError `code` if a change sets none of the `fields`. */
export function requireChange(change: object, code: number, fields: string): void {
  if (Object.keys(change).length > 0) return
  throw new ServiceError(code, `The request changes nothing. Set ${fields}.`)
}

/** Texts that every resource has; their lengths have codes of their own. */
export const texts = {
  description: z.string().optional(),
  metadata: z.string().optional(),
}

/** How nearly all items begin in an answer. */
export const itemFields = { id: z.string(), uri: z.string(), created_at: Timestamp }

/** A reference to another resource. */
export const Reference = z.strictObject({ id: z.string(), uri: z.string() })

/** `http://host:port` under which the client reached this API; the host was checked before. */
export function baseUrlOf(request: Request): string {
  return `${request.protocol}://${request.get('host')}`
}
