import type { AppError, FieldError } from '../base/app-error.ts'

export const PROBLEM_TYPE = 'application/problem+json'

/** RFC 9457 problem details, with our members behind its own. */
export interface ProblemDetails {
  readonly type: string
  readonly title: string
  readonly status: number
  readonly detail: string
  readonly code: string
  readonly request_id?: string
  readonly errors?: readonly FieldError[]
  readonly service_code?: string
}

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
