import type { z } from 'zod'
import { AppError, type FieldError } from '../base/app-error.ts'

/** More than a person reads; a body can hold thousands of mistakes. */
const MAX_ERRORS = 50

/**
 * Reads `value` with `schema`. Throws AppError `invalid-request` that names every bad field at
 * once, each by its RFC 6901 pointer.
 */
export function parse<T>(schema: z.ZodType<T>, value: unknown): T {
  return settled(schema.safeParse(value), value)
}

/** The same with a schema that has to wait. */
export async function parseAsync<T>(schema: z.ZodType<T>, value: unknown): Promise<T> {
  return settled(await schema.safeParseAsync(value), value)
}

function settled<T>(result: z.ZodSafeParseResult<T>, value: unknown): T {
  if (result.success) return result.data
  const errors = result.error.issues.flatMap((issue) => toFieldErrors(issue, value))
  const count = errors.length === 1 ? 'One field is' : `${errors.length} fields are`
  throw new AppError('invalid-request', `${count} not valid.`, {
    errors: errors.slice(0, MAX_ERRORS),
  })
}

/** RFC 6901: `~` and `/` inside a name are escaped. */
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
