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

/** The trail as far as requests need to know it. */
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
  /** The stable code of a refusal; undefined for what was no change at all, such as a wrong path. */
  readonly codeOf: (error: unknown) => string | undefined
  readonly clock: Clock
}

interface RequestedChangeOptions extends ChangeAuditOptions {
  readonly refusals: Limiter
}

/** The change that a request asks for; whoever carries it out does so through `run`. */
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
   * Answers when the change and its row in the trail are on disk. `about` names what was changed,
   * `tried` what is to be, should it fail, `concluded` what the id that the last write names was
   * changed to, so that both are one write; a row for each of several. Refuses callers whose token or key was revoked while the
   * body of their request was still to come.
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

  /** Nothing is asked for but what would be done: the trail hears nothing of it. */
  waive(): void {
    this.#isTold = true
  }

  /**
   * Notes that the request failed before anything was carried out. Gives the error to answer with
   * in its place when the caller has been refused too often.
   */
  async refuse(error: unknown): Promise<AppError | undefined> {
    const { codeOf, refusals, trail } = this.#options
    const code = codeOf(error)
    if (this.#isTold || code === undefined) return undefined
    this.#isTold = true
    const { id, name } = this.#change.actor
    const waitMs = refusals.take(id ?? name)
    if (waitMs > 0) {
      const retryAfterS = waitMs / 1_000
      return new AppError('too-many-requests', 'Too many changes were refused.', { retryAfterS })
    }
    await trail.note(this.#change, code)
    return undefined
  }
}

/**
 * Makes a `RequestedChange` of each request of a known caller that is not there to read, and notes
 * those that are refused: 60 of a caller at once, then one a second. What is over is answered with
 * AppError `too-many-requests` and not noted. Two handlers: one behind the authentication, one
 * before the error response.
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

/** The change that the request behind `response` asks for. */
export function changeOf(response: Response): RequestedChange {
  return response.locals.change
}

/** Of one caller. Each is a write to storage that the caller has no right to. */
const REFUSALS = { capacity: 60, refillPerS: 1, maxKeys: 1_000 }

/**
 * `POST /api_keys` is `api_key.create`, `POST /tokens/x/rotate` is `token.rotate` of x, and
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
