import type { Response } from 'express'
import type { Actor } from '../base/audit.ts'

/** What a token or a key lets its holder do. */
export type Scope = 'read' | 'write'

/** Who sent a request, once that is known. */
export interface Caller {
  readonly actor: Actor
  readonly scope: Scope
}

/** Leaves the caller with the answer, for those who handle the request afterwards. */
export function keepCaller<Who extends Caller>(response: Response, caller: Who): void {
  response.locals.caller = caller
}

/** The caller of the request that `response` answers; throws where nobody has asked for one. */
export function callerOf<Who extends Caller = Caller>(response: Response): Who {
  const caller: Who | undefined = response.locals.caller
  if (!caller) throw new Error('this request has no caller')
  return caller
}
