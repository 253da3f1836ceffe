import { ExpressionProblem } from '../../../policy/expression/expression-problem.ts'
import {
  type CallNode,
  CONDITIONAL,
  INDEX,
  type Node,
} from '../../../policy/expression/expression-tree.ts'

const FUNCTIONS = new Set([
  ...['size', 'contains', 'startsWith', 'endsWith'],
  ...['has', 'timestamp', 'add', 'subtract'],
])
const OPERATORS = '==, !=, <, <=, >, >=, in, &&, ||, !'
const ALLOWED = `${OPERATORS}, size(), contains(), startsWith(), endsWith(), has() and timestamp()`

/** What is wrong with a part of a filter. The place of a dotted name is where it begins. */
export function refusal(node: Node, message: string): ExpressionProblem {
  if (node.kind === 'select') return refusal(node.operand, message)
  return new ExpressionProblem(message, { node: node.id })
}

/** `what` is a beginning with its verb, such as `an index is`. */
export function unsupported(node: Node, what: string): ExpressionProblem {
  return refusal(node, `${what} not supported; filters support ${ALLOWED}`)
}

export function unsupportedCall(node: CallNode): ExpressionProblem {
  const { name } = node
  if (name === INDEX) return unsupported(node, 'an index is')
  if (name === CONDITIONAL) return unsupported(node, 'the operator ?: is')
  if (!/[a-z]/i.test(name)) return unsupported(node, `arithmetic with ${signOf(name)} is`)
  return unsupported(node, FUNCTIONS.has(name) ? `${name}() in this form is` : `${name}() is`)
}

/** Operators by their sign: `_<_` is `<`. */
export function signOf(name: string): string {
  return name.replaceAll('_', '')
}
