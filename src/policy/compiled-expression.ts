import { EvaluationError } from './evaluation.ts'
import type { Exchange } from './exchange.ts'
import type { Node } from './expression-tree.ts'
import type { Type } from './expression-type.ts'
import type { Value } from './value.ts'

interface ExpressionParts {
  readonly source: string
  readonly form: Node
  readonly type: Type
  readonly run: (exchange: Exchange) => Value
}

/** A checked expression, ready to run. */
export class CompiledExpression {
  readonly source: string
  /** The tree that runs; callers may know a faster way for simple ones. */
  readonly form: Node
  readonly type: Type
  readonly #run: (exchange: Exchange) => Value

  constructor({ source, form, type, run }: ExpressionParts) {
    this.source = source
    this.form = form
    this.type = type
    this.#run = run
  }

  /** Throws EvaluationError. */
  evaluate(exchange: Exchange): Value {
    return this.#run(exchange)
  }

  /** Evaluates a condition. Throws EvaluationError, also when the value is not a boolean. */
  isTrue(exchange: Exchange): boolean {
    const value = this.#run(exchange)
    if (typeof value !== 'boolean') throw new EvaluationError('the expression is not a boolean')
    return value
  }
}
