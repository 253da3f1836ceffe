import type { Duplex } from 'node:stream'
import type { ErrorRequestHandler, RequestHandler } from 'express'
import * as z from 'zod'
import { AppError } from '../base/app-error.ts'
import type { Logger } from '../base/logger.ts'
import { requestIdOf } from './access-log.ts'

export const PROBLEM_TYPE = 'application/problem+json'

/** RFC 9457 problem details. Our own members come last. */
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

function problemDetails(error: AppError, requestId?: string): ProblemDetails {
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

/** How an API writes an error. */
export interface ErrorFormat {
  readonly mediaType: string
  readonly bodyOf: (error: AppError) => object
}

const PROBLEM_FORMAT: ErrorFormat = { mediaType: PROBLEM_TYPE, bodyOf: problemDetails }

const CODES = {
  HPE_HEADER_OVERFLOW: ['headers-too-large', 'The request line and headers exceed 16 KiB.'],
  ERR_HTTP_REQUEST_TIMEOUT: ['request-timeout', 'The request was not received in time.'],
} as const

/** Answers requests that Node's parser rejected, in the format of the API, then closes the connection. */
export function answerMalformedRequest(
  error: NodeJS.ErrnoException,
  socket: Duplex,
  { mediaType, bodyOf }: ErrorFormat = PROBLEM_FORMAT,
): void {
  if (!socket.writable || error.code === 'ECONNRESET') {
    socket.destroy()
    return
  }
  const [code, detail] = CODES[error.code as keyof typeof CODES] ?? [
    'malformed-request',
    'The request is not valid HTTP/1.1.',
  ]
  const refusal = new AppError(code, detail)
  const body = JSON.stringify(bodyOf(refusal))
  const head = [
    `HTTP/1.1 ${refusal.status} ${refusal.title}`,
    `content-type: ${mediaType}`,
    `content-length: ${Buffer.byteLength(body)}`,
    'cache-control: no-store',
    'connection: close',
  ]
  socket.end(`${head.join('\r\n')}\r\n\r\n${body}`)
}

/**
 * Converts all errors to answers: `application/problem+json`, RFC 9457. Errors other than AppError are bugs.
 * They are logged once and not shown to the client.
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

/** Returns the error to send for a thrown value. */
export function toAppError(thrown: unknown): AppError {
  if (thrown instanceof AppError) return thrown
  // Thrown by the router for a path such as /tunnels/%zz.
  if (thrown instanceof URIError) {
    return new AppError('malformed-request', 'The path contains an invalid percent escape.')
  }
  return new AppError('internal', 'Internal error. See `device-agent logs`.')
}

/** Last handler, for unknown paths. Throws AppError `not-found`. */
export const noRoute: RequestHandler = (request) => {
  throw new AppError('not-found', `The path ${request.path} does not exist.`)
}

/**
 * Last handler of a route. Answers OPTIONS with the supported methods, and throws AppError
 * `method-not-allowed` for other methods (RFC 9110 sections 9.3.7 and 15.5.6).
 */
export function methodNotAllowed(...allowed: readonly string[]): RequestHandler {
  const allow = [...allowed, 'OPTIONS'].join(', ')
  return (request, response) => {
    response.setHeader('allow', allow)
    if (request.method === 'OPTIONS') {
      response.status(204).end()
      return
    }
    throw new AppError(
      'method-not-allowed',
      `${request.method} is not supported at ${request.baseUrl}${request.path}. Supported: ${allow}.`,
    )
  }
}
