import type { Request } from 'express'
import * as z from 'zod'
import { AppError, type FieldError } from '../base/app-error.ts'
import { nearest } from '../base/nearest.ts'

/** Enough for a reader. A body can contain thousands of errors. */
const MAX_ERRORS = 50

/**
 * Validates `value` with `schema`. Throws AppError `invalid-request` with all invalid fields, each with its
 * RFC 6901 pointer.
 */
export function parse<T>(schema: z.ZodType<T>, value: unknown): T {
  const { result, adviceFor } = parseFields(schema, value)
  if (result.success) return result.data
  const mistakes = result.error.issues.flatMap((issue) => mistakesOf(issue, adviceFor))
  const count = mistakes.length === 1 ? 'One field is' : `${mistakes.length} fields are`
  throw new AppError('invalid-request', `${count} not valid.`, {
    errors: mistakes.slice(0, MAX_ERRORS).map((mistake) => mistake(value)),
  })
}

type AdviceFor = (unknown: string, issue: z.core.$ZodIssueUnrecognizedKeys) => string

/**
 * Validates `value`. `adviceFor` returns the question for the field that an unknown field probably means, with
 * a space before it, or an empty text.
 */
export function parseFields<T>(
  schema: z.ZodType<T>,
  value: unknown,
): { readonly result: z.ZodSafeParseResult<T>; readonly adviceFor: AdviceFor } {
  const known = new Map<readonly string[], readonly string[]>()
  const result = schema.safeParse(value, {
    // The issues in the result no longer have the schema, but the same list of keys.
    error: (issue) => {
      if (issue.code === 'unrecognized_keys') known.set(issue.keys, fieldsOf(issue.inst))
      return undefined
    },
  })
  const adviceFor: AdviceFor = (unknown, { keys }) => meantText(unknown, known.get(keys) ?? [])
  return { result, adviceFor }
}

function fieldsOf(schema: unknown): readonly string[] {
  return schema instanceof z.ZodObject ? Object.keys(schema.shape) : []
}

/** Returns ` Did you mean <name>?`, or an empty text if no name is similar. */
export function meantText(unknown: string, names: readonly string[]): string {
  const meant = nearest(unknown, names)
  return meant === undefined ? '' : ` Did you mean ${meant}?`
}

/** Returns an RFC 6901 pointer. `~` and `/` in names are escaped. */
export function toPointer(path: readonly PropertyKey[]): string {
  return path.map((part) => `/${String(part).replaceAll('~', '~0').replaceAll('/', '~1')}`).join('')
}

/** Each mistake writes its error when it is shown: a body can contain thousands. */
function mistakesOf(
  issue: z.core.$ZodIssue,
  adviceFor: AdviceFor,
): ((value: unknown) => FieldError)[] {
  if (issue.code === 'unrecognized_keys') {
    return issue.keys.map((key) => () => {
      const advice = adviceFor(key, issue)
      return {
        pointer: toPointer([...issue.path, key]),
        detail: advice === '' ? 'is unknown' : `is unknown.${advice}`,
      }
    })
  }
  return [(value) => ({ pointer: toPointer(issue.path), detail: describe(issue, value) })]
}

/** Text for a mistake in `value`, such as "must be at most 10". */
export function describe(issue: z.core.$ZodIssue, value: unknown): string {
  if (issue.code === 'invalid_type') {
    if (valueAt(value, issue.path) === undefined) return 'is required'
    return `must be ${/^[aeiou]/.test(issue.expected) ? 'an' : 'a'} ${issue.expected}`
  }
  const hasOwnText = !/^(Too|Invalid) /.test(issue.message)
  if (hasOwnText) return issue.message
  switch (issue.code) {
    case 'too_big':
      return `must ${sized(issue.origin, 'at most', issue.maximum)}`
    case 'too_small':
      return `must ${sized(issue.origin, 'at least', issue.minimum)}`
    case 'invalid_value':
      return `must be ${choiceOf(issue.values)}`
    default:
      return issue.message
  }
}

const UNITS: Readonly<Record<string, readonly [unit: string, units: string]>> = {
  string: ['character', 'characters'],
  array: ['entry', 'entries'],
}

function sized(origin: string, bound: string, size: number | bigint): string {
  const [unit, units] = UNITS[origin] ?? []
  return unit ? `have ${bound} ${size} ${Number(size) === 1 ? unit : units}` : `be ${bound} ${size}`
}

function choiceOf(values: readonly unknown[]): string {
  const texts = values.map((value) => JSON.stringify(value))
  return texts.length === 1 ? String(texts[0]) : `one of ${texts.join(', ')}`
}

/** The value at the path of a mistake; undefined without one. */
export function valueAt(value: unknown, path: readonly PropertyKey[]): unknown {
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
      if (match && !fits(match, etag)) throw unmatched(etag)
      if (noneMatch && fits(noneMatch === '*' ? '*' : noneMatch.map(strong), etag)) {
        throw failed(
          `The resource exists already. To change it, send If-Match: ${etag} instead of If-None-Match.`,
        )
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

/** A retry helps only if there is a version to read. */
function unmatched(etag: string | undefined): AppError {
  return failed(
    etag === undefined
      ? 'The resource does not exist. To create it, send the request without If-Match.'
      : `The current ETag is ${etag}. Read the resource again, then retry.`,
  )
}

function failed(text: string): AppError {
  return new AppError('precondition-failed', text)
}
