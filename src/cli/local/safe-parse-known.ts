import type * as z from 'zod'

/**
 * Parses JSON of a program that may be newer, and say more: what a strict schema does not know is left
 * out. Nothing else is forgiven.
 */
export function safeParseKnown<T>(schema: z.ZodType<T>, value: unknown): z.ZodSafeParseResult<T> {
  const parsed = schema.safeParse(value)
  if (parsed.success) return parsed
  const known = structuredClone(value)
  for (const issue of parsed.error.issues) {
    if (issue.code !== 'unrecognized_keys') return parsed
    const object = issue.path.reduce(memberOf, known)
    for (const key of issue.keys) Reflect.deleteProperty(object as object, key)
  }
  return schema.safeParse(known)
}

function memberOf(value: unknown, key: PropertyKey): unknown {
  return (value as Record<PropertyKey, unknown>)[key]
}
