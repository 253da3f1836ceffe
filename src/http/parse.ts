import type { Request } from 'express'
import type { z } from 'zod'
import { AppError, type FieldError } from '../base/app-error.ts'

/** Enough for a reader. A body can contain thousands of errors. */
const MAX_ERRORS = 50

/**
 * Validates `value` with `schema`. Throws AppError `invalid-request` with all invalid fields, each with its
 * RFC 6901 pointer.
 */
export function parse<T>(schema: z.ZodType<T>, value: unknown): T {
  return settled(schema.safeParse(value), value)
}

function settled<T>(result: z.ZodSafeParseResult<T>, value: unknown): T {
  if (result.success) return result.data
  const errors = result.error.issues.flatMap((issue) => toFieldErrors(issue, value))
  const count = errors.length === 1 ? 'One field is' : `${errors.length} fields are`
  throw new AppError('invalid-request', `${count} not valid.`, {
    errors: errors.slice(0, MAX_ERRORS),
  })
}

/** Returns an RFC 6901 pointer. `~` and `/` in names are escaped. */
export function toPointer(path: readonly PropertyKey[]): string {
  return path.map((part) => `/${String(part).replaceAll('~', '~0').replaceAll('/', '~1')}`).join('')
}

function toFieldErrors(issue: z.core.$ZodIssue, value: unknown): FieldError[] {
  if (issue.code === 'unrecognized_keys') {
    return issue.keys.map((key) => ({
      pointer: toPointer([...issue.path, key]),
      detail: 'is unknown',
    }))
  }
  return [{ pointer: toPointer(issue.path), detail: describe(issue, value) }]
}

function describe(issue: z.core.$ZodIssue, value: unknown): string {
  if (issue.code !== 'invalid_type') return issue.message
  if (valueAt(value, issue.path) === undefined) return 'is required'
  return `must be ${/^[aeiou]/.test(issue.expected) ? 'an' : 'a'} ${issue.expected}`
}

function valueAt(value: unknown, path: readonly PropertyKey[]): unknown {
  return path.reduce<unknown>(
    (inner, part) => (inner as Record<PropertyKey, unknown> | undefined)?.[part],
    value,
  )
}

/** `*`, or entity tags. Weak ones begin with `W/`. */
type Tags = '*' | readonly string[]

const TAG = /^(?:W\/)?"[\x21\x23-\x7e\x80-\xff]*"$/
/** More versions of a resource than a client has seen. */
const MAX_TAGS = 20

/** Preconditions of a request that changes a resource (RFC 9110 section 13.1). */
interface Conditions {
  /** `etag` is undefined if the resource does not exist. Throws AppError `precondition-failed`. */
  require(etag: string | undefined): void
}

/** Parses `If-Match` and `If-None-Match`. Throws AppError `invalid-request` for an invalid entity tag. */
export function readConditions(request: Request): Conditions {
  const match = readTags(request, 'If-Match')
  const noneMatch = readTags(request, 'If-None-Match')
  return {
    require: (etag) => {
      // A weak tag means that two versions are equivalent, but a change requires the same version.
      if (match && !fits(match, etag)) throw failed(etag)
      if (noneMatch && fits(noneMatch === '*' ? '*' : noneMatch.map(strong), etag)) {
        throw failed(etag)
      }
    },
  }
}

function readTags(request: Request, name: string): Tags | undefined {
  const text = request.get(name)?.trim()
  if (text === undefined) return undefined
  if (text === '*') return text
  const tags = text.split(',').map((part) => part.trim())
  if (tags.length <= MAX_TAGS && tags.every((tag) => TAG.test(tag))) return tags
  throw new AppError(
    'invalid-request',
    `${name} must be * or an ETag in quotes, such as ${name}: "5c1f".`,
  )
}

function fits(tags: Tags, etag: string | undefined): boolean {
  if (etag === undefined) return false
  return tags === '*' || tags.includes(etag)
}

const strong = (tag: string) => tag.replace(/^W\//, '')

function failed(etag: string | undefined): AppError {
  const now = etag === undefined ? 'The resource does not exist' : `The current ETag is ${etag}`
  return new AppError('precondition-failed', `${now}. Read the resource again, then retry.`)
}
