import type { Response } from 'express'
import type { Actor } from '../base/audit.ts'

/** What a token or a key lets its holder do. */
export type Scope = 'read' | 'write'

/** Who sent a request, once that is known. */
export interface Caller {
  readonly actor: Actor
  readonly scope: Scope
}

/**
 * Leaves the caller with the answer, for those who handle the request afterwards. `recheck` throws
 * when the caller may no longer do what it could when it was asked for first.
 */
export function keepCaller<Who extends Caller>(
  response: Response,
  caller: Who,
  recheck: () => void,
): void {
  response.locals.caller = caller
  response.locals.recheckCaller = recheck
}

/** The caller of the request that `response` answers; throws where nobody has asked for one. */
export function callerOf<Who extends Caller = Caller>(response: Response): Who {
  const caller: Who | undefined = response.locals.caller
  if (!caller) throw new Error('this request has no caller')
  return caller
}

/** Asks again whether the caller may do what it wants to: its request may have taken its time. */
export function recheckCaller(response: Response): void {
  response.locals.recheckCaller()
}
