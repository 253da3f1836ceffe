import type { Phase } from '../phase.ts'
import type { Evaluation } from './evaluation.ts'
import { type CallNode, childrenOf, type Node, pathOf } from './expression-tree.ts'
import type { ListValue, MapValue, MessageValue, UintValue, Value, ValueInput } from './value.ts'

/** The types that parameters can have, by the shape in which their values arrive. */
interface ParameterTypes {
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

/** Checks arguments that are constants, whatever the others are. Returns the problem. */
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

/** One way to call a function; a method's target is its first parameter. */
export interface Overload {
  readonly isMethod: boolean
  readonly parameters: readonly string[]
  readonly result: string
  readonly phases?: readonly Phase[] | undefined
  readonly check?: CheckArguments | undefined
}

/** All overloads of a name. */
export type FindOverloads = (name: string) => readonly Overload[] | undefined

/** `json.decode` when that is a function, and not a method of something called `json`. */
export function qualifiedName({ target, name }: CallNode, find: FindOverloads): string | undefined {
  const path = target && pathOf(target)
  const qualified = path === undefined ? undefined : `${path}.${name}`
  return qualified !== undefined && find(qualified) ? qualified : undefined
}

/** True when nothing below depends on a variable or on the request. */
export function isConstant(node: Node, find: FindOverloads): boolean {
  if (node.kind === 'constant') return true
  if (node.kind === 'name' || node.kind === 'fold') return false
  if (node.kind === 'call') return isConstantCall(node, find)
  return childrenOf(node).every((child) => isConstant(child, find))
}

function isConstantCall(node: CallNode, find: FindOverloads): boolean {
  const qualified = qualifiedName(node, find)
  const name = qualified ?? node.name
  if (name.startsWith('@') || find(name)?.some(({ phases }) => phases)) return false
  const operands = qualified === undefined ? childrenOf(node) : node.args
  return operands.every((operand) => isConstant(operand, find))
}

/** Asks whether a variable with a dotted name has a value: the function that rewrites may call. */
export const IS_KNOWN = '@is_known'

/** Where a call of an unknown function stands. */
export interface CallPlace {
  /** Whether it is a method of a list. */
  readonly isList: boolean
  /** The part of the expression around it. */
  readonly parent: Node | undefined
  /** The dotted name of the variable that is called like a function. */
  readonly variable: string | undefined
}

/** Additions to the language for a kind of subject: macros, variables and functions. */
export interface Dialect {
  /** Names that read like functions and are rewritten. */
  readonly macros: readonly string[]
  /** Puts the tree in terms of the language and the functions; throws Error with a sentence. */
  readonly rewrite: (tree: Node, isVariable: (path: string) => boolean) => Node
  /** The right form of a call that people often write. See `CheckerOptions`. */
  readonly meantCall?: (node: CallNode, place: CallPlace) => string | undefined
}

/** A name that expressions can read. It is computed when an expression asks for it, not before. */
export interface Variable<Subject> {
  /** `string`, `list(string)`, `map(dyn)`, … */
  readonly type: string
  readonly phases?: readonly Phase[]
  /** Why the value is always empty: a clause. Undefined: it depends on the subject. */
  readonly noData?: string
  /** Undefined when the subject has no such thing. */
  readonly read: (subject: Subject, evaluation: Evaluation) => ValueInput | undefined
}
