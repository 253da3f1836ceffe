import type { ErrorRequestHandler, Request, RequestHandler, Response } from 'express'
import type { AuditedChange } from '../base/audit.ts'
import { callerOf, recheckCaller } from './caller.ts'
import { requestIdOf } from './request-id.ts'

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
    },
  ): Promise<T>
  note(change: AuditedChange, result: string): void
}

export interface ChangeAuditOptions {
  readonly trail: ChangeTrail
  readonly clientOf: (request: Request) => string
  /** The stable code of a refusal; undefined for what was no change at all, such as a wrong path. */
  readonly codeOf: (error: unknown) => string | undefined
}

/** The change that a request asks for; whoever carries it out does so through `run`. */
export class RequestedChange {
  readonly #options: ChangeAuditOptions
  readonly #change: AuditedChange
  readonly #recheck: () => void
  #isTold = false

  constructor(change: AuditedChange, recheck: () => void, options: ChangeAuditOptions) {
    this.#change = change
    this.#recheck = recheck
    this.#options = options
  }

  /**
   * Answers when the change and its row in the trail are on disk. `about` names what was changed,
   * `tried` what is to be, should it fail. Refuses callers whose token or key was revoked while the
   * body of their request was still to come.
   */
  run<T>(
    work: () => T | Promise<T>,
    about: (result: T) => Partial<AuditedChange> = () => ({}),
    tried: Partial<AuditedChange> = {},
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
    })
  }

  /** Notes that the request failed before anything was carried out. */
  refuse(error: unknown): void {
    const code = this.#options.codeOf(error)
    if (this.#isTold || code === undefined) return
    this.#isTold = true
    this.#options.trail.note(this.#change, code)
  }
}

/**
 * Makes a `RequestedChange` of each request of a known caller that is not there to read, and notes
 * those that are refused. Two handlers: one behind the authentication, one before the error response.
 */
export function changeAudit(options: ChangeAuditOptions): [RequestHandler, ErrorRequestHandler] {
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
        response.locals.change = new RequestedChange(change, recheck, options)
      }
      next()
    },
    (error, _request, response, next) => {
      const change: RequestedChange | undefined = response.locals.change
      change?.refuse(error)
      next(error)
    },
  ]
}

/** The change that the request behind `response` asks for. */
export function changeOf(response: Response): RequestedChange {
  return response.locals.change
}

/** `POST /api_keys` is `api_key.create`, `POST /tokens/x/rotate` is `token.rotate` of x. */
function actionOf(path: string, verb: string): Pick<AuditedChange, 'action' | 'targetId'> {
  const [, collection = '', id, ...rest] = path.split('/')
  const noun = collection.replace(/ies$/, 'y').replace(/s$/, '')
  const what = rest.length === 0 ? verb : verb === 'create' ? rest.join('.') : `${verb}_${rest}`
  return { action: `${noun}.${what}`, targetId: id }
}
