import type { RequestHandler } from 'express'
import { AppError } from '../base/app-error.ts'

/** The end of the line for paths that nothing serves: AppError `not-found`. */
export const noRoute: RequestHandler = (request) => {
  throw new AppError('not-found', `The path ${request.path} does not exist.`)
}

/** The end of a route for the methods it lacks, RFC 9110 section 15.5.6. */
export function methodNotAllowed(...allowed: readonly string[]): RequestHandler {
  return (request, response) => {
    response.setHeader('allow', allowed.join(', '))
    throw new AppError(
      'method-not-allowed',
      `${request.method} is not supported at ${request.path}.`,
    )
  }
}
