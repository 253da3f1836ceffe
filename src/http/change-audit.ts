import type { ErrorRequestHandler, Request, RequestHandler, Response } from 'express'
import { AppError } from '../base/app-error.ts'
import type { AuditedChange, Concluded } from '../base/audit.ts'
import type { Clock } from '../base/clock.ts'
import { type Limiter, TokenBuckets } from '../base/limiter.ts'
import { requestIdOf } from './access-log.ts'
import { callerOf, recheckCaller } from './caller.ts'

const VERBS: Readonly<Record<string, string>> = {
  POST: 'create',
  PUT: 'replace',
  PATCH: 'update',
  DELETE: 'delete',
}

/** The part of the audit trail that request handling uses. */
export interface ChangeTrail {
  run<T>(
    change: AuditedChange,
    work: () => T | Promise<T>,
    options: {
      readonly about: (result: T) => Partial<AuditedChange>
      readonly codeOf: (error: unknown) => string
      readonly concluded?: Concluded | undefined
    },
  ): Promise<T>
  note(change: AuditedChange, result: string): Promise<void>
}

export interface ChangeAuditOptions {
  readonly trail: ChangeTrail
  readonly clientOf: (request: Request) => string
  /** Error code of a refused change. Undefined if the request was not a change, for example a wrong path. */
  readonly codeOf: (error: unknown) => string | undefined
  readonly clock: Clock
}

interface RequestedChangeOptions extends ChangeAuditOptions {
  readonly refusals: Limiter
}

/** The change that a request asks for. Route handlers carry it out through `run`. */
export class RequestedChange {
  readonly #options: RequestedChangeOptions
  readonly #change: AuditedChange
  readonly #recheck: () => void
  #isTold = false

  constructor(change: AuditedChange, recheck: () => void, options: RequestedChangeOptions) {
    this.#change = change
    this.#recheck = recheck
    this.#options = options
  }

  /**
   * Makes the change and records it. Resolves when the change and its audit row are on disk.
   *
   * - `about` describes the change from the result.
   * - `tried` describes the intended change, for the row of a failure.
   * - `concluded` describes the change by the id in its final write, so that change and row are one write. It
   *   may return one row for each changed object.
   *
   * Rejects callers whose token or key was revoked while the request body was arriving.
   */
  run<T>(
    work: () => T | Promise<T>,
    about: (result: T) => Partial<AuditedChange> = () => ({}),
    tried: Partial<AuditedChange> = {},
    concluded?: Concluded,
  ): Promise<T> {
    const { trail, codeOf } = this.#options
    this.#isTold = true
    const checked = () => {
      this.#recheck()
      return work()
    }
    return trail.run({ ...this.#change, ...tried }, checked, {
      about,
      codeOf: (error) => codeOf(error) ?? 'not-found',
      concluded,
    })
  }

  /** Marks the request as a dry run, which is not recorded. */
  waive(): void {
    this.#isTold = true
  }

  /**
   * Records a request that failed before `run`. If the caller exceeded its limit of refused changes, returns
   * the error to send instead.
   */
  async refuse(error: unknown): Promise<AppError | undefined> {
    const { codeOf, refusals, trail } = this.#options
    const code = codeOf(error)
    if (this.#isTold || code === undefined) return undefined
    this.#isTold = true
    const { id, name } = this.#change.actor
    const waitMs = refusals.tryCount(id ?? name)
    if (waitMs > 0) {
      const retryAfterS = waitMs / 1_000
      return new AppError('too-many-requests', 'Too many changes were refused.', { retryAfterS })
    }
    await trail.note(this.#change, code)
    return undefined
  }
}

/**
 * Records changes. Creates a `RequestedChange` for each write request of an authenticated caller, and records
 * refused requests.
 *
 * Refusals are limited per caller: a burst of 60, then one per second. Beyond that, the caller gets AppError
 * `too-many-requests` and nothing is recorded.
 *
 * Mount the first handler after authentication and the second before the error response.
 */
export function changeAudit(options: ChangeAuditOptions): [RequestHandler, ErrorRequestHandler] {
  const refusals = new TokenBuckets({ ...REFUSALS, clock: options.clock })
  return [
    (request, response, next) => {
      const verb = VERBS[request.method]
      if (verb !== undefined) {
        const change = {
          actor: callerOf(response).actor,
          client: options.clientOf(request),
          ...actionOf(request.path, verb),
          requestId: requestIdOf(response),
        }
        const recheck = () => recheckCaller(response)
        response.locals.change = new RequestedChange(change, recheck, { ...options, refusals })
      }
      next()
    },
    async (error, _request, response, next) => {
      const change: RequestedChange | undefined = response.locals.change
      next((await change?.refuse(error)) ?? error)
    },
  ]
}

/** Returns the change that the request of `response` asks for. */
export function changeOf(response: Response): RequestedChange {
  return response.locals.change
}

/** Limit per caller. Each refusal costs a write to storage, which the caller has no right to. */
const REFUSALS = { capacity: 60, refillPerS: 1, maxKeys: 1_000 }

/**
 * Names the change. `POST /api_keys` is `api_key.create`, `POST /tokens/x/rotate` is `token.rotate` of x, and
 * `PUT /tunnels` is `tunnel_set.replace`.
 */
export function actionOf(path: string, verb: string): Pick<AuditedChange, 'action' | 'targetId'> {
  const [, collection = '', id, ...rest] = path.split('/')
  const one = collection.replace(/ies$/, 'y').replace(/s$/, '')
  const noun = id === undefined && verb === 'replace' ? `${one}_set` : one
  const what = rest.length === 0 ? verb : verb === 'create' ? rest.join('.') : `${verb}_${rest}`
  return { action: `${noun}.${what}`, targetId: id && decoded(id) }
}

function decoded(part: string): string {
  try {
    return decodeURIComponent(part)
  } catch {
    return part
  }
}
