import type { Clock } from '../../../base/clock.ts'
import type { CompiledExpression } from '../../../policy/expression/compiled-expression.ts'
import { ExpressionLanguage } from '../../../policy/expression/expression.ts'
import {
  EvaluationError,
  ExpressionProblem,
} from '../../../policy/expression/expression-problem.ts'
import { BOOL } from '../../../policy/expression/expression-type.ts'
import { FUNCTION_PRICES } from '../../../policy/vocabulary/all-functions.ts'
import { TEXT_FUNCTIONS } from '../../../policy/vocabulary/text.ts'
import { FIELD_FUNCTIONS, type Fields } from './fields.ts'
import { FilterReader } from './filter-reader.ts'

/** Cached filters: each page of a list has the filter again. */
const MAX_PARSED = 50

/** A condition on items, such as `obj.domain == "a.test"`. */
export class Filter {
  readonly #expression: CompiledExpression<object>

  constructor(expression: CompiledExpression<object>) {
    this.#expression = expression
  }

  /**
   * False as well when the condition cannot be decided because a number or a time is missing.
   * Throws EvaluationError when it takes too long.
   */
  matches(item: object): boolean {
    try {
      return this.#expression.isTrue(item)
    } catch (error) {
      if (error instanceof EvaluationError && !error.isOverspent) return false
      throw error
    }
  }
}

/**
 * Compiles filters: the part of CEL that compares fields of an item, named `obj`, as in the API of the hosted
 * service.
 */
export class FilterLanguage {
  readonly #clock: Clock
  #language: ExpressionLanguage<object> | undefined

  constructor(clock: Clock) {
    this.#clock = clock
  }

  /** `time.now` is the moment of this call. Throws ExpressionProblem. */
  compile(source: string, fields: Fields): Filter {
    if (source.trim() === '') throw new ExpressionProblem('it is empty')
    this.#language ??= new ExpressionLanguage({
      clock: this.#clock,
      functions: [...TEXT_FUNCTIONS, ...FIELD_FUNCTIONS],
      variables: new Map(),
      prices: FUNCTION_PRICES,
      maxParsed: MAX_PARSED,
    })
    const reader = new FilterReader(fields, this.#clock.now())
    const expression = this.#language.compileAs(source, (tree) => {
      return { form: reader.read(tree), type: BOOL }
    })
    return new Filter(expression)
  }
}
