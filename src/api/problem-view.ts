import { isoTimeOrNull } from './iso-time.ts'

/** What keeps something from being up, as the agent knows it. */
export interface ShownProblem {
  readonly reason?: string
  readonly remedy?: string
  readonly lastError?: string
  readonly serviceCode?: string | undefined
  readonly nextRetryAt?: number | undefined
}

/** The same as clients read it: every field is always there, null when there is nothing to say. */
export interface ProblemView {
  readonly reason: string | null
  readonly remedy: string | null
  readonly last_error: string | null
  readonly service_code: string | null
  readonly next_retry_at: string | null
}

export function problemView(problem: ShownProblem): ProblemView {
  return {
    reason: problem.reason ?? null,
    remedy: problem.remedy ?? null,
    last_error: problem.lastError ?? null,
    service_code: problem.serviceCode ?? null,
    next_retry_at: isoTimeOrNull(problem.nextRetryAt),
  }
}
