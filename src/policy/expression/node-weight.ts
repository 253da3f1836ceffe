import { type FindOverloads, qualifiedName } from './expression-function.ts'
import {
  AND,
  type CallNode,
  CONDITIONAL,
  call,
  childrenOf,
  type FoldNode,
  INDEX,
  integer,
  mapChildren,
  type Node,
  OR,
  pathOf,
  textOf,
} from './expression-tree.ts'

/** Stands in macros that absorb errors. */
const NOT_STRICTLY_FALSE = '@not_strictly_false'
/** Steps of visiting a node. */
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
 * Steps of a tree for all values, except the cost of its functions and macro items, which is known only at
 * run time. Every part counts as if it ran.
 */
export function weightOf(node: Node): number {
  if (node.kind === 'fold') {
    return NODE_STEPS + weightOf(node.range) + weightOf(node.init) + weightOf(node.result)
  }
  // A dotted name is one, however long.
  if (node.kind === 'select' && pathOf(node) !== undefined) return PATH_STEPS
  return childrenOf(node).reduce((sum, child) => sum + weightOf(child), ownWeight(node))
}

/** The same for the part that runs for each item of a macro. */
function itemWeight({ condition, step, accumulator }: FoldNode): number {
  const [first] = step.kind === 'call' ? step.args : []
  // Each macro passes its result on in its own form.
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

/** Hands a range on after it was accounted: the range, and the steps that each item takes. */
export const ACCOUNTED = '@accounted'
/** Hands a list or map on in which something is looked up that may be a number: in a map it takes long. */
export const INDEXED = '@indexed'
/** A list that macros append to in place; `[]` + `[x]` + `[y]` would copy it for each item. */
export const NEW_LIST = '@list'
export const APPEND = '@append'

/** Bounds the cost of macros: each range is paid before its first item is read. */
export function rewriteCosts(node: Node): Node {
  if (node.kind === 'call' && node.name === INDEX) return rewriteIndex(node)
  if (node.kind !== 'fold') return mapChildren(node, rewriteCosts)
  const { id } = node
  const weight = itemWeight(node)
  const fold = mapChildren(node, rewriteCosts) as FoldNode
  return {
    ...fold,
    range: call(id, ACCOUNTED, [fold.range, integer(id, weight)]),
    init: fold.init.kind === 'list' ? call(id, NEW_LIST, []) : fold.init,
    step: appendInPlace(fold.step, fold.accumulator),
  }
}

function rewriteIndex(node: CallNode): Node {
  const [of, key] = node.args
  if (!of || !key || textOf(key) !== undefined) return mapChildren(node, rewriteCosts)
  const [operand, index] = [rewriteCosts(of), rewriteCosts(key)]
  return call(node.id, node.name, [call(node.id, INDEXED, [operand]), index])
}

/** `accumulator + [item]`, alone or under a condition, is how `map` and `filter` collect. */
function appendInPlace(step: Node, accumulator: string): Node {
  if (step.kind !== 'call') return step
  const [first, second] = step.args
  const collects =
    step.name === '_+_' && first?.kind === 'name' && first.name === accumulator && second
  if (collects && second.kind === 'list') return call(step.id, APPEND, [first, ...second.items])
  if (step.name !== '_?_:_') return step
  const [condition, then, otherwise] = step.args
  if (!condition || !then || !otherwise) return step
  return call(step.id, step.name, [condition, appendInPlace(then, accumulator), otherwise])
}

/** The least that a call of a function costs, by its name. */
type LeastPrice = (name: string) => number

/** Steps of an expression in the best case, for every request. */
export class LeastSteps {
  readonly #find: FindOverloads
  readonly #priceOf: LeastPrice

  constructor(find: FindOverloads, priceOf: LeastPrice) {
    this.#find = find
    this.#priceOf = priceOf
  }

  of(tree: Node): number {
    return weightOf(tree) + this.#within(tree)
  }

  /** Steps in addition to the weight of the tree: called functions and macro items. */
  #within(node: Node): number {
    if (node.kind === 'fold') return this.#ofFold(node)
    if (node.kind !== 'call') return this.#sum(childrenOf(node))
    const [first, second, third] = node.args
    switch (node.name) {
      case AND:
      case OR:
        return first ? this.#within(first) : 0
      case CONDITIONAL:
        if (!first || !second || !third) return 0
        return this.#within(first) + Math.min(this.#within(second), this.#within(third))
    }
    const qualified = qualifiedName(node, this.#find)
    if (qualified !== undefined) return this.#priceOf(qualified) + this.#sum(node.args)
    return this.#priceOf(node.name) + this.#sum(childrenOf(node))
  }

  #sum(nodes: readonly Node[]): number {
    return nodes.reduce((sum, node) => sum + this.#within(node), 0)
  }

  /** All items are paid for before the first one; how many are looked at may depend on them. */
  #ofFold(node: FoldNode): number {
    const size = leastSize(node.range)
    const looksAtAll = isTrue(node.condition)
    const looked = looksAtAll ? size : Math.min(size, 1)
    const each = this.#within(node.condition) + this.#within(node.step)
    return this.#within(node.range) + size * itemWeight(node) + looked * each
  }
}

/** How many items a range has at least. */
function leastSize(range: Node): number {
  switch (range.kind) {
    case 'list':
      return range.items.length
    case 'map':
      return range.entries.length
    case 'call':
      return isRange(range) ? rangeSize(range) : 0
    case 'fold':
      return collectsAll(range) ? leastSize(range.range) : 0
    default:
      return 0
  }
}

function isRange({ name, target }: CallNode): boolean {
  return name === 'range' && target?.kind === 'name' && target.name === 'lists'
}

function rangeSize({ args }: CallNode): number {
  const [count] = args
  return count?.kind === 'constant' && count.value.case === 'int64Value'
    ? Math.max(0, Number(count.value.value))
    : 0
}

/** `map` without a condition: it has as many items as its range. */
function collectsAll({ init, condition, step }: FoldNode): boolean {
  return init.kind === 'list' && isTrue(condition) && step.kind === 'call' && step.name === '_+_'
}

function isTrue(node: Node): boolean {
  return node.kind === 'constant' && node.value.case === 'boolValue' && node.value.value
}
