import { formatNode } from '../expression/comparison.ts'
import {
  AND,
  type CallNode,
  childrenOf,
  EQUAL,
  NOT,
  type Node,
  type OR,
  pathOf,
  UNEQUAL,
} from '../expression/expression-tree.ts'

/** Two operands that decide the result together, whatever the request is. */
export interface Conflict {
  /** Indexes of the operands. */
  readonly pair: readonly [number, number]
  /** A clause, with the right form if there is one. */
  readonly message: string
}

/** The operands of nested calls of `&&`, or of `||`, in their order. */
export function operandsOf(node: Node, operator: string): Node[] {
  if (node.kind !== 'call' || node.name !== operator) return [node]
  return node.args.flatMap((arg) => operandsOf(arg, operator))
}

/**
 * Finds operands of `&&` that are never true together, or of `||` of which one is always true: a condition
 * and its opposite, or one value compared with two constants. `show` formats a node.
 */
export function conflictAmong(
  operands: readonly Node[],
  operator: typeof AND | typeof OR,
  show: (node: Node) => string | undefined = formatNode,
): Conflict | undefined {
  const seen = new Map<string, number>()
  const compared = new Map<string, { readonly at: number; readonly constant: Node }>()
  const isAnd = operator === AND
  const [sign, result] = isAnd ? [EQUAL, 'never true together'] : [UNEQUAL, 'together always true']
  for (const [index, node] of operands.entries()) {
    if (isRandom(node)) continue
    const opposite = seen.get(oppositeKey(node))
    if (opposite !== undefined) {
      return { pair: [opposite, index], message: `a condition and its opposite are ${result}` }
    }
    seen.set(keyOf(node), index)
    const sides = node.kind === 'call' && node.name === sign ? sidesOf(node) : undefined
    if (!sides) continue
    const [subject, constant] = sides
    const other = compared.get(keyOf(subject))
    if (other && keyOf(other.constant) !== keyOf(constant)) {
      const [name, ...values] = [subject, other.constant, constant].map(show)
      const list = `${name} in [${values.join(', ')}]`
      const right = isAnd ? list : `!(${list})`
      const advice = name === undefined ? '' : `. Write ${right}`
      const fact = isAnd ? 'never has two values at once' : 'always differs from one of two values'
      const message = `${name ?? 'a value'} ${fact}${advice}`
      return { pair: [other.at, index], message }
    }
    compared.set(keyOf(subject), { at: index, constant })
  }
  return undefined
}

/** The side that may change, and the constant. */
function sidesOf({ args: [left, right] }: CallNode): readonly [Node, Node] | undefined {
  if (!left || !right || (left.kind === 'constant') === (right.kind === 'constant'))
    return undefined
  return left.kind === 'constant' ? [right, left] : [left, right]
}

function oppositeKey(node: Node): string {
  if (node.kind !== 'call') return `${NOT}(${keyOf(node)})`
  const [first] = node.args
  if (node.name === NOT && first) return keyOf(first)
  const other = node.name === EQUAL ? UNEQUAL : node.name === UNEQUAL ? EQUAL : undefined
  return other === undefined ? `${NOT}(${keyOf(node)})` : keyOf({ ...node, name: other })
}

/** Equal for expressions with the same text. */
export function keyOf(node: Node): string {
  switch (node.kind) {
    case 'constant':
      return `${node.value.case} ${JSON.stringify(String(node.value.value))}`
    case 'name':
      return node.name
    case 'select':
      return `${node.isTest ? 'has ' : ''}${keyOf(node.operand)}.${JSON.stringify(node.field)}`
    case 'call':
      return `${node.target ? `${keyOf(node.target)}.` : ''}${node.name}(${node.args.map(keyOf)})`
    case 'fold':
      return `${node.variable} ${childrenOf(node).map(keyOf)}`
    default:
      return `${node.kind}(${childrenOf(node).map(keyOf)})`
  }
}

/** Whether a part has another value each time. */
function isRandom(node: Node): boolean {
  if (node.kind === 'call' && node.target && pathOf(node.target) === 'rand') return true
  return childrenOf(node).some(isRandom)
}
