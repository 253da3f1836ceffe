import type { Request } from 'express'
import * as z from 'zod'
import { ServiceError } from '../records/service-error.ts'

/** Reads the body of a request. Throws ServiceError 214 for an unknown field, 215 for a bad one. */
export function parseBody<T>(schema: z.ZodType<T>, body: unknown): T {
  const parsed = schema.safeParse(body)
  if (parsed.success) return parsed.data
  const [issue] = parsed.error.issues
  if (issue?.code === 'unrecognized_keys') {
    throw new ServiceError(214, `The body has unknown fields: ${issue.keys.join(', ')}.`)
  }
  const field = issue?.path.join('.') || 'body'
  throw new ServiceError(215, `The field ${field} is not valid: ${issue?.message}.`)
}

/** Texts that every resource has; their lengths have codes of their own. */
export const texts = {
  description: z.string().optional(),
  metadata: z.string().optional(),
}

/** A reference to another resource. */
export const Reference = z.strictObject({ id: z.string(), uri: z.string() })

/** `http://host:port` under which the client reached this API; the host was checked before. */
export function baseUrlOf(request: Request): string {
  return `${request.protocol}://${request.get('host')}`
}
