/** An expression that failed while it ran. */
export class EvaluationError extends Error {
  override readonly name = 'EvaluationError'
  /** True when it had spent all that it may, false when its values did not fit. */
  readonly isOverspent: boolean

  constructor(message: string, { isOverspent = false } = {}) {
    super(message)
    this.isOverspent = isOverspent
  }
}

/** An expression that cannot be used. The message is a clause: `x is not known`. */
export class ExpressionProblem extends Error {
  override readonly name = 'ExpressionProblem'
  /** Position in the source, in characters; undefined: the whole source. */
  readonly offset: number | undefined
  readonly isForeign: boolean
  readonly node: bigint | undefined
  /** Further problems of the same expression. */
  readonly further: readonly ExpressionProblem[]

  constructor(
    message: string,
    at: {
      node?: bigint | undefined
      offset?: number | undefined
      isForeign?: boolean
      further?: readonly ExpressionProblem[]
    } = {},
  ) {
    super(message)
    this.node = at.node
    this.offset = at.offset
    this.isForeign = at.isForeign ?? false
    this.further = at.further ?? []
  }
}
