import type { ErrorRequestHandler, RequestHandler } from 'express'
import { AppError } from '../../../base/app-error.ts'
import type { Logger } from '../../../base/logger.ts'
import { type ErrorFormat, toAppError } from '../../../http/error-response.ts'
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
  readonly error_code: string
  readonly status_code: number
  readonly msg: string
  readonly details: Readonly<Record<string, string>>
}

/** No resource has this path. */
export class NoSuchPathError extends Error {
  override readonly name = 'NoSuchPathError'
  readonly path: string

  constructor(path: string) {
    super('Not Found')
    this.path = path
  }
}

/** Last handler, for unknown paths. Throws NoSuchPathError. */
export const noSuchRoute: RequestHandler = (request) => {
  throw new NoSuchPathError(request.path)
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

/** Format of this API's errors for the HTTP server. */
export function apiErrorFormat(ids: IdSource, log: Logger): ErrorFormat {
  return { mediaType: 'application/json; charset=utf-8', bodyOf: apiErrorBodies(ids, log) }
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

const NOT_FOUND = { error_code: 'ERR_GATEWAY_NOT_FOUND', status_code: 404 }

function toBody(thrown: unknown, operation: string): ApiErrorBody {
  const details = { operation_id: operation }
  if (thrown instanceof ServiceError) {
    const { code, errorCode: error_code, message: msg } = thrown
    return { error_code, status_code: STATUS_OF[code] ?? 400, msg, details }
  }
  if (thrown instanceof ResourceNotFoundError) {
    return { ...NOT_FOUND, msg: 'Resource not found', details }
  }
  if (thrown instanceof NoSuchPathError) {
    return { ...NOT_FOUND, msg: thrown.message, details: { ...details, path: thrown.path } }
  }
  const error = toAppError(thrown)
  const { code, status: status_code, message: msg } = error
  if (code === 'internal') {
    const error_code = codeText(code)
    return { error_code, status_code, msg: 'Internal error. See the log of the gateway.', details }
  }
  return { error_code: error.serviceCode ?? codeText(code), status_code, msg, details }
}

/** `ERR_NGROK_226` if the vendor has a code for the error, else `ERR_GATEWAY_BODY_TOO_LARGE`. */
function codeText(code: AppError['code']): string {
  const vendors = CODE_OF[code]
  return vendors === undefined
    ? `ERR_GATEWAY_${code.toUpperCase().replaceAll('-', '_')}`
    : `ERR_NGROK_${vendors}`
}

/** Code of a refusal in the audit trail. A request to an unknown path or with a wrong method is no change. */
export function refusalCode(thrown: unknown): string | undefined {
  if (thrown instanceof NoSuchPathError) return undefined
  if (thrown instanceof ServiceError) return thrown.errorCode
  if (thrown instanceof ResourceNotFoundError) return 'not-found'
  if (!(thrown instanceof AppError)) return 'internal'
  return thrown.code === 'method-not-allowed' ? undefined : thrown.code
}
