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
