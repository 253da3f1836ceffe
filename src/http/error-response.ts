import type { ErrorRequestHandler } from 'express'
import { AppError } from '../base/app-error.ts'
import type { Logger } from '../base/logger.ts'
import { PROBLEM_TYPE, problemDetails } from './problem-details.ts'
import { requestIdOf } from './request-id.ts'

/**
 * The one place where errors become answers: `application/problem+json`, RFC 9457.
 * Whatever is not an AppError is a mistake of ours: logged once, told to nobody.
 */
export function errorResponse(log: Logger): ErrorRequestHandler {
  return (thrown: unknown, _request, response, _next) => {
    const error = toAppError(thrown)
    const requestId = requestIdOf(response)
    if (error.code === 'internal')
      log.error({ err: thrown, request_id: requestId }, 'request failed')
    if (response.headersSent) {
      response.destroy()
      return
    }
    if (error.retryAfterS !== undefined) {
      response.setHeader('retry-after', String(Math.ceil(error.retryAfterS)))
    }
    response.status(error.status).setHeader('content-type', PROBLEM_TYPE)
    response.end(`${JSON.stringify(problemDetails(error, requestId))}\n`)
  }
}

/** The error that is answered for what was thrown. */
export function toAppError(thrown: unknown): AppError {
  if (thrown instanceof AppError) return thrown
  // The router's own refusal of a path such as /tunnels/%zz.
  if (thrown instanceof URIError) {
    return new AppError('malformed-request', 'The path contains an invalid percent escape.')
  }
  return new AppError('internal', 'Internal error. See `device-agent logs`.')
}
