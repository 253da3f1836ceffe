import {
  AND,
  type CallNode,
  childrenOf,
  type FoldNode,
  INDEX,
  type Node,
  OR,
  pathOf,
} from '../expression-tree.ts'

/** Stands in macros that absorb errors. */
const NOT_STRICTLY_FALSE = '@not_strictly_false'
/** What it takes to come to any node. */
const NODE_STEPS = 1
/** Operators and other functions of the language that take as long for all operands. */
const CALL_STEPS = 5
/** A variable by its dotted name; a field or an item of another value, which may not be there. */
const PATH_STEPS = 12
const ACCESS_STEPS = 4
/** An operand of `&&` or `||` that may be no boolean. */
const OPERAND_STEPS = 20
/** To go on to the next item of a macro. */
const ITEM_STEPS = 4

/**
 * The steps that a tree takes whatever its values are, but for what its functions cost and for the
 * items of its macros: these are known when it runs. Every part is paid as if it ran.
 */
export function weightOf(node: Node): number {
  if (node.kind === 'fold') {
    return NODE_STEPS + weightOf(node.range) + weightOf(node.init) + weightOf(node.result)
  }
  // A dotted name is one, however long.
  if (node.kind === 'select' && pathOf(node) !== undefined) return PATH_STEPS
  return childrenOf(node).reduce((sum, child) => sum + weightOf(child), ownWeight(node))
}

/** The same of what runs for each item of a macro. */
export function itemWeight({ condition, step, accumulator }: FoldNode): number {
  const [first] = step.kind === 'call' ? step.args : []
  // Each macro hands on what it has, in its own form.
  const handedOn = first?.kind === 'name' && first.name === accumulator ? operandSteps(first) : 0
  const own = step.kind === 'call' && isLogical(step) ? handedOn : 0
  return ITEM_STEPS + weightOf(condition) + weightOf(step) - own
}

function ownWeight(node: Node): number {
  if (node.kind === 'select') return node.isTest ? NODE_STEPS : ACCESS_STEPS
  if (node.kind !== 'call') return NODE_STEPS
  if (node.name === INDEX) return ACCESS_STEPS
  if (node.name === NOT_STRICTLY_FALSE) return NODE_STEPS
  if (!isLogical(node)) return CALL_STEPS
  return node.args.reduce((sum, operand) => sum + operandSteps(operand), CALL_STEPS)
}

const isLogical = ({ name }: CallNode) => name === AND || name === OR

const operandSteps = ({ kind }: Node) => (kind === 'name' || kind === 'select' ? OPERAND_STEPS : 0)
