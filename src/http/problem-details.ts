import * as z from 'zod'
import type { AppError } from '../base/app-error.ts'

export const PROBLEM_TYPE = 'application/problem+json'

/** RFC 9457 problem details, with our members behind its own. */
export const ProblemDetails = z.strictObject({
  type: z.string(),
  title: z.string(),
  status: z.int().min(400).max(599),
  detail: z.string(),
  code: z.string().describe('stable error code'),
  request_id: z.string().optional(),
  errors: z
    .array(
      z.strictObject({
        pointer: z.string().describe('JSON pointer (RFC 6901)'),
        detail: z.string(),
        code: z.string().optional(),
      }),
    )
    .readonly()
    .optional(),
  service_code: z.string().optional().describe('error code of the gateway or hosted service'),
})
export type ProblemDetails = z.infer<typeof ProblemDetails>

export function problemDetails(error: AppError, requestId?: string): ProblemDetails {
  const { code, title, status, message: detail, errors, serviceCode } = error
  return {
    type: `urn:device-agent:problem:${code}`,
    title,
    status,
    detail,
    code,
    ...(requestId === undefined ? {} : { request_id: requestId }),
    ...(errors.length === 0 ? {} : { errors }),
    ...(serviceCode === undefined ? {} : { service_code: serviceCode }),
  }
}
