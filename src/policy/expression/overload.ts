import type { Phase } from '../phase.ts'
import type { CheckArguments } from './expression-function.ts'
import { type CallNode, childrenOf, type Node, pathOf } from './expression-tree.ts'

/** One way to call a function; a method's target is its first parameter. */
export interface Overload {
  readonly isMethod: boolean
  readonly parameters: readonly string[]
  readonly result: string
  readonly phases?: readonly Phase[] | undefined
  readonly check?: CheckArguments | undefined
}

/** All ways to call what has a name. */
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
