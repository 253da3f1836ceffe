/** Why something is not up. Each reason has one kind of remedy. */
export type Reason =
  | 'network'
  | 'dns'
  | 'tls'
  | 'clock'
  | 'auth'
  | 'acl'
  | 'conflict'
  | 'duplicate'
  | 'policy'
  | 'limit'
  | 'saturated'
  | 'upstream'
  | 'resources'
  | 'storage'
  | 'internal'

/** What keeps a link or a tunnel from being up, for people and programs. Holds no secret. */
export interface Problem {
  readonly reason: Reason
  /** What happened, one line. */
  readonly detail: string
  /** What to do about it, one sentence. */
  readonly remedy: string
  /** True when trying again soon cannot help: somebody has to change something. */
  readonly permanent: boolean
  /** The service's own code, such as `ERR_NGROK_334`. */
  readonly serviceCode?: string | undefined
}

/** A Problem, as people see it; empty when there is none. Times are milliseconds since the epoch. */
export interface ShownProblem {
  readonly reason?: Reason
  readonly serviceCode?: string | undefined
  readonly remedy?: string
  readonly lastError?: string
  readonly nextRetryAt?: number | undefined
}

/** A Problem on its way up. */
export class ProblemError extends Error {
  override readonly name = 'ProblemError'
  readonly problem: Problem

  constructor(problem: Problem, options?: ErrorOptions) {
    super(problem.detail, options)
    this.problem = problem
  }
}

/** The problem that an error carries; any other error is a mistake of ours. */
export function problemOf(error: unknown): Problem {
  if (error instanceof ProblemError) return error.problem
  return {
    reason: 'internal',
    detail: error instanceof Error ? error.message : String(error),
    remedy: 'See device-agent logs. The agent retries automatically.',
    permanent: false,
  }
}

/** The link works, and is full: the service has too many requests for this device under way. */
export function saturatedProblem(detail: string, serviceCode: string): Problem {
  return {
    reason: 'saturated',
    detail,
    remedy:
      'Too many concurrent requests. Wait, or find the busiest tunnel in the console of the service.',
    permanent: false,
    serviceCode,
  }
}

/** The link works no longer, or never did: nothing that somebody decided. */
export function networkProblem(detail: string): Problem {
  return {
    reason: 'network',
    detail,
    remedy: 'Check the network of the device. The agent reconnects automatically.',
    permanent: false,
  }
}

export function shownProblem(problem: Problem | undefined): ShownProblem {
  if (!problem) return {}
  const { reason, serviceCode, remedy, detail } = problem
  return { reason, serviceCode, remedy, lastError: detail }
}
