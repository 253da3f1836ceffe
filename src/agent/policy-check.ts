import type { FieldError } from '../base/app-error.ts'
import type { Clock } from '../base/clock.ts'
import type { Logger } from '../base/logger.ts'
import type { PolicyProblem } from '../policy/problem.ts'
import type { JsonObject } from './tunnel.ts'

export interface PolicyCheckOptions {
  /** What only the service can judge, such as an action that is not known here, is let pass. */
  readonly allowsForeign: boolean
  readonly clock: Clock
  readonly log: Logger
}

/** Everything that keeps a document from being used as a policy; empty when nothing does. */
export type PolicyCheck = (document: JsonObject) => Promise<FieldError[]>

/** A check with the code that the gateway runs policies with. */
export function createPolicyCheck({ allowsForeign, clock, log }: PolicyCheckOptions): PolicyCheck {
  return async (document) => {
    // Loaded with the first policy: the engine is a fifth of the memory of an agent.
    const [{ compilePolicy }, { PolicyError }] = await Promise.all([
      import('../policy/policy.ts'),
      import('../policy/problem.ts'),
    ])
    try {
      compilePolicy(document, { clock, log })
      return []
    } catch (error) {
      if (!(error instanceof PolicyError)) throw error
      const isLetPass = ({ isForeign }: PolicyProblem) => isForeign && allowsForeign
      const errors = error.problems.filter(({ severity }) => severity === 'error')
      for (const { pointer, message } of errors.filter(isLetPass)) {
        log.warn({ pointer, detail: message }, 'the service will have to judge this policy')
      }
      return errors
        .filter((problem) => !isLetPass(problem))
        .map(({ pointer, message, code }) => ({ pointer, detail: message, code }))
    }
  }
}
