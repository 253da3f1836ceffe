import type { Price } from './cost/price.ts'
import { EvaluationError } from './evaluation-error.ts'
import type { Node } from './expression-tree.ts'
import type { Type } from './expression-type.ts'
import { toText, type Value } from './value.ts'

const TEXT_PRICE: Price = { call: 2, kib: 30 }
/** Lists and maps become JSON. */
const JSON_PRICE: Price = { call: 2, kib: 120, item: 8, isDeep: true }

/** A tree that can run, and the type of what it comes to. */
export interface TypedForm {
  readonly form: Node
  readonly type: Type
}

interface ExpressionParts<Subject> extends TypedForm {
  readonly source: string
  readonly leastSteps: number
  readonly run: (subject: Subject) => Value
  /** Does now what the first run would have to do. */
  readonly prepare: () => void
  /** Takes for what is made of the value. */
  readonly pay: (subject: Subject, price: Price, value: Value) => void
}

/** A checked expression, ready to run. */
export class CompiledExpression<Subject> {
  readonly source: string
  /** The tree that runs; callers may know a faster way for simple ones. */
  readonly form: Node
  readonly type: Type
  /** What it costs in the best case. */
  readonly leastSteps: number
  /** Does now what would hold up the first run. */
  readonly prepare: () => void
  readonly #run: (subject: Subject) => Value
  readonly #pay: ExpressionParts<Subject>['pay']

  constructor({ source, form, type, leastSteps, run, pay, prepare }: ExpressionParts<Subject>) {
    this.source = source
    this.form = form
    this.type = type
    this.leastSteps = leastSteps
    this.#run = run
    this.prepare = prepare
    this.#pay = pay
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

  /** The value as it stands in a text. Throws EvaluationError. */
  text(subject: Subject): string {
    const value = this.#run(subject)
    this.#pay(subject, typeof value === 'string' ? TEXT_PRICE : JSON_PRICE, value)
    return toText(value)
  }

  /** Evaluates a condition. Throws EvaluationError, also when the value is not a boolean. */
  isTrue(subject: Subject): boolean {
    const value = this.#run(subject)
    if (typeof value !== 'boolean') throw new EvaluationError('the expression is not a boolean')
    return value
  }
}
