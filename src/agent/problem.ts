/** Why something is not up. Each reason has one kind of remedy. */
export type Reason =
  | 'network'
  | 'dns'
  | 'tls'
  | 'clock'
  | 'auth'
  | 'acl'
  | 'conflict'
  | 'policy'
  | 'limit'
  | 'upstream'
  | 'storage'
  | 'internal'

/** What keeps a link or a tunnel from being up, for people and programs. Holds no secret. */
export interface Problem {
  readonly reason: Reason
  /** What happened, one line. */
  readonly detail: string
  /** What to do about it, one sentence. */
  readonly remedy: string
  /** True when trying again soon cannot help. */
  readonly permanent: boolean
  /** The service's own code, such as `ERR_NGROK_334`. */
  readonly serviceCode?: string | undefined
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
