import { EvaluationError } from './evaluation.ts'
import type { Node } from './expression-tree.ts'
import type { Type } from './expression-type.ts'
import type { Value } from './value.ts'

/** A tree that can run, and the type of what it comes to. */
export interface TypedForm {
  readonly form: Node
  readonly type: Type
}

interface ExpressionParts<Subject> extends TypedForm {
  readonly source: string
  readonly run: (subject: Subject) => Value
}

/** A checked expression, ready to run. */
export class CompiledExpression<Subject> {
  readonly source: string
  /** The tree that runs; callers may know a faster way for simple ones. */
  readonly form: Node
  readonly type: Type
  readonly #run: (subject: Subject) => Value

  constructor({ source, form, type, run }: ExpressionParts<Subject>) {
    this.source = source
    this.form = form
    this.type = type
    this.#run = run
  }

  /** True for a condition that is written as `true`. */
  get isAlwaysTrue(): boolean {
    const { form } = this
    return form.kind === 'constant' && form.value.case === 'boolValue' && form.value.value
  }

  /** Throws EvaluationError. */
  evaluate(subject: Subject): Value {
    return this.#run(subject)
  }

  /** Evaluates a condition. Throws EvaluationError, also when the value is not a boolean. */
  isTrue(subject: Subject): boolean {
    const value = this.#run(subject)
    if (typeof value !== 'boolean') throw new EvaluationError('the expression is not a boolean')
    return value
  }
}
