import type { FieldError } from '../base/app-error.ts'
import type { Clock } from '../base/clock.ts'
import type { Logger } from '../base/logger.ts'
import { compilePolicy } from '../policy/policy.ts'
import { PolicyError } from '../policy/problem.ts'
import type { JsonObject } from './tunnel.ts'

/** Unknown action, and an action that cannot be had here: the hosted service may have it. */
const ONLY_HERE = new Set(['ERR_NGROK_2201', 'ERR_NGROK_2256'])

export interface PolicyCheckOptions {
  /** The hosted service has actions that the embedded gateway has not: those are let pass. */
  readonly isHosted: boolean
  readonly clock: Clock
  readonly log: Logger
}

/** Everything that keeps a document from being used as a policy; empty when nothing does. */
export type PolicyCheck = (document: JsonObject) => FieldError[]

/** A check with the code that the gateway runs policies with. */
export function createPolicyCheck({ isHosted, clock, log }: PolicyCheckOptions): PolicyCheck {
  return (document) => {
    try {
      compilePolicy(document, { clock, log })
      return []
    } catch (error) {
      if (!(error instanceof PolicyError)) throw error
      return error.problems
        .filter(({ severity, code }) => severity === 'error' && !(isHosted && ONLY_HERE.has(code)))
        .map(({ pointer, message, code }) => ({ pointer, detail: message, code }))
    }
  }
}
