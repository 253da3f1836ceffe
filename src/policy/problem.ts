/** Something wrong with a policy document. */
export interface PolicyProblem {
  /** RFC 6901 JSON pointer into the document as it was written. */
  readonly pointer: string
  /** One sentence for people. */
  readonly message: string
  /** The service's own code: `ERR_NGROK_22xx`. */
  readonly code: string
  /** A warning does not keep the policy from being used. */
  readonly severity: 'error' | 'warning'
}

/** A document that cannot be used; `problems` has every error, not just the first. */
export class PolicyError extends Error {
  override readonly name = 'PolicyError'
  readonly problems: readonly PolicyProblem[]

  constructor(problems: readonly PolicyProblem[]) {
    super(problems[0]?.message ?? 'The policy cannot be used.')
    this.problems = problems
  }
}
