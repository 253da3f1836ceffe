import type { RequestHandler } from 'express'
import { AppError } from '../base/app-error.ts'
import { callerOf } from './caller.ts'

const SAFE_METHODS = new Set(['GET', 'HEAD', 'OPTIONS'])

/**
 * Lets changes pass whose caller has the scope `write`. Throws AppError `insufficient-scope`, as in
 * RFC 6750 section 3.1.
 */
export function scopeGuard(realm: string): RequestHandler {
  return (request, response, next) => {
    if (!SAFE_METHODS.has(request.method) && callerOf(response).scope !== 'write') {
      const challenge = `Bearer realm="${realm}", error="insufficient_scope", scope="write"`
      response.setHeader('www-authenticate', challenge)
      throw new AppError(
        'insufficient-scope',
        'This token may only read: changes need one with the scope write.',
      )
    }
    next()
  }
}
