import * as z from 'zod'
import { IsoTime, isoTimeOrNull } from './iso-time.ts'

/** The cause that keeps something offline, as the agent knows it. */
export interface ShownProblem {
  readonly reason?: string
  readonly remedy?: string
  readonly lastError?: string
  readonly serviceCode?: string | undefined
  readonly nextRetryAt?: number | undefined
}

/** The same as clients read it: every field is always there, null when there is nothing to say. */
export const problemFields = {
  reason: z.string().nullable().describe('cause: network, auth, acl, saturated, …'),
  remedy: z.string().nullable().describe('fix in one sentence'),
  last_error: z.string().nullable(),
  service_code: z.string().nullable(),
  next_retry_at: IsoTime.nullable(),
}
export const ProblemView = z.strictObject(problemFields)

export function problemView(problem: ShownProblem): z.infer<typeof ProblemView> {
  return {
    reason: problem.reason ?? null,
    remedy: problem.remedy ?? null,
    last_error: problem.lastError ?? null,
    service_code: problem.serviceCode ?? null,
    next_retry_at: isoTimeOrNull(problem.nextRetryAt),
  }
}
