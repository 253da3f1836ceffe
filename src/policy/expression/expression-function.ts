import type { Phase } from '../phase.ts'
import type { Evaluation } from './evaluation.ts'
import type { Node } from './expression-tree.ts'
import type { ListValue, MapValue, MessageValue, UintValue, Value, ValueInput } from './value.ts'

/** The types that parameters can have, by the shape in which their values arrive. */
export interface ParameterTypes {
  readonly bool: boolean
  readonly int: bigint
  readonly uint: UintValue
  readonly double: number
  readonly string: string
  readonly bytes: Uint8Array
  readonly list: ListValue
  readonly map: MapValue
  readonly timestamp: MessageValue
  readonly duration: MessageValue
  readonly dyn: Value
}

export type ParameterType = keyof ParameterTypes

/** A function or method that expressions can call. A method's target is its first argument. */
export interface ExpressionFunction<Subject = unknown> {
  readonly name: string
  readonly isMethod: boolean
  readonly parameters: readonly ParameterType[]
  /** `string`, `list(string)`, `map(dyn)`, … */
  readonly result: string
  /** Phases in which it can be called; all when absent. */
  readonly phases?: readonly Phase[]
  readonly run: (evaluation: Evaluation<Subject>, ...args: Value[]) => ValueInput
  readonly check?: CheckArguments
}

/** Says what is wrong with arguments that are written out, whatever the others come to. */
export type CheckArguments = (args: readonly Node[]) => string | undefined

type Arguments<P extends readonly ParameterType[]> = {
  -readonly [K in keyof P]: ParameterTypes[P[K]]
}

type Run<P extends readonly ParameterType[]> = (...args: Arguments<P>) => ValueInput
type RunWithin<P extends readonly ParameterType[], Subject> = (
  evaluation: Evaluation<Subject>,
  ...args: Arguments<P>
) => ValueInput

/** A function of its arguments alone: `name(a, b)`. */
export function fn<const P extends readonly ParameterType[]>(
  name: string,
  parameters: P,
  result: string,
  run: Run<P>,
): ExpressionFunction {
  return fnWithin(name, parameters, result, (_, ...args) => run(...args))
}

/** A method of its arguments alone: `a.name(b)`; the first parameter is the target. */
export function method<const P extends readonly ParameterType[]>(
  name: string,
  parameters: P,
  result: string,
  run: Run<P>,
): ExpressionFunction {
  return { ...fn(name, parameters, result, run), isMethod: true }
}

/** A function that looks at the subject, the time or the account of the evaluation. */
export function fnWithin<const P extends readonly ParameterType[], Subject = unknown>(
  name: string,
  parameters: P,
  result: string,
  run: RunWithin<P, Subject>,
  phases?: readonly Phase[],
): ExpressionFunction<Subject> {
  return {
    name,
    isMethod: false,
    parameters,
    result,
    // The evaluator calls it only with arguments of these types.
    run: run as unknown as ExpressionFunction<Subject>['run'],
    ...(phases && { phases }),
  }
}

/** The same as a method. */
export function methodWithin<const P extends readonly ParameterType[]>(
  name: string,
  parameters: P,
  result: string,
  run: RunWithin<P, unknown>,
): ExpressionFunction {
  return { ...fnWithin(name, parameters, result, run), isMethod: true }
}

/** Adds a check of written-out arguments. */
export function checked(definition: ExpressionFunction, check: CheckArguments): ExpressionFunction {
  return { ...definition, check }
}
