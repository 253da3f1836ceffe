import type { ErrorRequestHandler, RequestHandler } from 'express'
import { AppError } from '../../../base/app-error.ts'
import type { Logger } from '../../../base/logger.ts'
import type { IdSource } from '../../records/resource-id.ts'
import { ResourceNotFoundError, ServiceError } from '../../records/service-error.ts'

/** Codes that are answered with another status than 400. */
const STATUS_OF: Readonly<Record<number, number>> = {
  200: 403,
  202: 403,
  203: 403,
  206: 403,
  208: 403,
  210: 415,
  216: 415,
  226: 429,
  227: 404,
  636: 403,
  831: 409,
  832: 409,
  833: 409,
  840: 503,
  841: 409,
  842: 409,
  843: 503,
  844: 409,
  850: 409,
  851: 409,
  852: 409,
  853: 409,
  18021: 409,
  23003: 409,
  24010: 409,
  24011: 503,
}
/** Errors of the HTTP room that have a code here. */
const CODE_OF: Partial<Record<AppError['code'], number>> = {
  'not-json': 210,
  'malformed-request': 212,
  'invalid-json': 213,
  'too-many-requests': 226,
}

/** The body of every answer that is an error. */
export interface ApiErrorBody {
  readonly error_code?: string
  readonly status_code: number
  readonly msg: string
  readonly details: Readonly<Record<string, string>>
}

/** The end of the line for paths and methods that nothing serves. */
export const noSuchRoute: RequestHandler = (request, response) => {
  response.status(404).json(notFoundBody(request.path))
}

export function notFoundBody(path: string): ApiErrorBody {
  return { status_code: 404, msg: 'Not Found', details: { path } }
}

/**
 * Converts all errors to responses of this API. Unexpected errors are logged, without details in the
 * response.
 */
export function apiErrorBodies(ids: IdSource, log: Logger): (thrown: unknown) => ApiErrorBody {
  return (thrown) => {
    const operation = ids.next('op')
    const body = toBody(thrown, operation)
    if (body.status_code === 500) log.error({ err: thrown, operation }, 'request failed')
    return body
  }
}

export function apiErrorResponse(
  errorBody: (thrown: unknown) => ApiErrorBody,
): ErrorRequestHandler {
  return (thrown: unknown, _request, response, _next) => {
    const body = errorBody(thrown)
    if (response.headersSent) {
      response.destroy()
      return
    }
    if (thrown instanceof AppError && thrown.retryAfterS !== undefined) {
      response.setHeader('retry-after', String(Math.ceil(thrown.retryAfterS)))
    }
    // RFC 6750 section 3.1: the key is no longer valid.
    if (body.error_code === 'ERR_GATEWAY_KEY_EXPIRED') {
      response.setHeader('www-authenticate', 'Bearer error="invalid_token"')
    }
    response.status(body.status_code).json(body)
  }
}

function toBody(thrown: unknown, operation: string): ApiErrorBody {
  const details = { operation_id: operation }
  if (thrown instanceof ServiceError) {
    const { code, errorCode: error_code, message: msg } = thrown
    return { error_code, status_code: STATUS_OF[code] ?? 400, msg, details }
  }
  if (thrown instanceof ResourceNotFoundError) {
    return { status_code: 404, msg: 'Resource not found', details }
  }
  if (thrown instanceof AppError) {
    const { code, status: status_code, message: msg } = thrown
    const error_code = CODE_OF[code] ? `ERR_NGROK_${CODE_OF[code]}` : thrown.serviceCode
    return { ...(error_code && { error_code }), status_code, msg, details }
  }
  if (thrown instanceof URIError) {
    return { status_code: 400, msg: 'The path contains an invalid percent escape.', details }
  }
  return { status_code: 500, msg: 'Internal error. See the log of the gateway.', details }
}

/** Code of a refusal in the audit trail. */
export function refusalCode(thrown: unknown): string {
  if (thrown instanceof ServiceError) return thrown.errorCode
  if (thrown instanceof ResourceNotFoundError) return 'not-found'
  return thrown instanceof AppError ? thrown.code : 'internal'
}
