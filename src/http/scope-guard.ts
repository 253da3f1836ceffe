import type { RequestHandler } from 'express'
import { AppError } from '../base/app-error.ts'
import { callerOf } from './caller.ts'

const SAFE_METHODS = new Set(['GET', 'HEAD', 'OPTIONS'])

export interface ScopeGuardOptions {
  /** What a caller has: `token` or `API key`. */
  readonly noun: string
  readonly serviceCode?: string
}

/**
 * Lets changes pass whose caller has the scope `write`. Throws AppError `insufficient-scope`, as in
 * RFC 6750 section 3.1.
 */
export function scopeGuard({ noun, serviceCode }: ScopeGuardOptions): RequestHandler {
  return (request, response, next) => {
    const { actor, scope } = callerOf(response)
    if (!SAFE_METHODS.has(request.method) && scope !== 'write') {
      response.setHeader('www-authenticate', 'Bearer error="insufficient_scope", scope="write"')
      throw new AppError(
        'insufficient-scope',
        `The ${noun} "${actor.name}" lacks the scope "write".`,
        { ...(serviceCode && { serviceCode }) },
      )
    }
    next()
  }
}
