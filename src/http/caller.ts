import type { Request, RequestHandler, Response } from 'express'
import { AppError } from '../base/app-error.ts'
import type { Actor } from '../base/audit.ts'
import type { Limiter } from '../base/limiter.ts'
import type { Logger } from '../base/logger.ts'

/** Permission of a token or API key. */
export type Scope = 'read' | 'write'

/** Author of a request, known after authentication. */
export interface Caller {
  readonly actor: Actor
  readonly scope: Scope
}

/**
 * Stores the caller in the response, for later handlers. `recheck` throws if the caller has lost its rights
 * since then.
 */
export function keepCaller<Who extends Caller>(
  response: Response,
  caller: Who,
  recheck: () => void,
): void {
  response.locals.caller = caller
  response.locals.recheckCaller = recheck
}

/** Returns the caller of the request that `response` answers. Throws if the request was not authenticated. */
export function callerOf<Who extends Caller = Caller>(response: Response): Who {
  const caller: Who | undefined = response.locals.caller
  if (!caller) throw new Error('this request has no caller')
  return caller
}

/** Checks again whether the caller still has its rights, because its request may have taken long. */
export function recheckCaller(response: Response): void {
  response.locals.recheckCaller()
}

/** RFC 6750 section 2.1. */
const BEARER = /^Bearer +([\w.~+/-]+=*) *$/i
const HAS_ENDED = 'The token has expired.'

interface BearerAuthOptions {
  readonly realm: string
  /** Returns the owner of the token, `ended` for an expired one, or undefined. Compares in constant time. */
  readonly authenticate: (token: string) => Caller | 'ended' | undefined
  /** Limits wrong tokens per client. */
  readonly failures: Limiter
  readonly clientOf: (request: Request) => string
  readonly log: Logger
}

/**
 * Admits requests with a valid bearer token and stores their caller. Throws AppError `unauthenticated`, or
 * `too-many-requests` if the client keeps sending wrong tokens.
 */
export function bearerAuth({
  realm,
  authenticate,
  failures,
  clientOf,
  log,
}: BearerAuthOptions): RequestHandler {
  return (request, response, next) => {
    const token = BEARER.exec(request.get('authorization') ?? '')?.[1]
    const found = token === undefined ? undefined : authenticate(token)
    if (token !== undefined && found !== undefined && found !== 'ended') {
      keepCaller(response, found, () => {
        if (typeof authenticate(token) !== 'object') throw refused(response, HAS_ENDED)
      })
      next()
      return
    }
    if (request.get('authorization') === undefined) {
      response.setHeader('www-authenticate', `Bearer realm="${realm}"`)
      throw new AppError('unauthenticated', 'Send the header authorization: Bearer <token>.')
    }
    const client = clientOf(request)
    const waitMs = failures.tryCount(client)
    if (waitMs > 0) {
      const retryAfterS = waitMs / 1_000
      throw new AppError('too-many-requests', 'Too many wrong tokens.', { retryAfterS })
    }
    log.warn(
      { client },
      found === 'ended'
        ? 'request with an expired token refused'
        : 'request with a wrong token refused',
    )
    throw refused(response, found === 'ended' ? HAS_ENDED : 'The token is not valid here.')
  }

  function refused(response: Response, detail: string): AppError {
    response.setHeader('www-authenticate', `Bearer realm="${realm}", error="invalid_token"`)
    return new AppError('unauthenticated', detail)
  }
}

const SAFE_METHODS = new Set(['GET', 'HEAD', 'OPTIONS'])

interface ScopeGuardOptions {
  /** Credential of a caller, for messages: `token` or `API key`. */
  readonly noun: string
  readonly serviceCode?: string
}

/**
 * Admits changes if the caller has the scope `write`. Throws AppError `insufficient-scope`, as in RFC 6750
 * section 3.1.
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

/** Admits only callers with the scope `write`, whatever the method. `doing`: what the route does, for messages. */
export function writersOnly(doing: string): RequestHandler {
  return (_request, response, next) => {
    const { actor, scope } = callerOf(response)
    if (scope === 'write') return next()
    const detail = `The token "${actor.name}" has the scope "read". ${doing} requires the scope "write".`
    throw new AppError('insufficient-scope', detail)
  }
}
