import { itemWeight, weightOf } from './cost/node-weight.ts'
import {
  AND,
  type CallNode,
  CONDITIONAL,
  childrenOf,
  type FoldNode,
  type Node,
  OR,
} from './expression-tree.ts'
import { type FindOverloads, qualifiedName } from './overload.ts'

/** The least that a call of a function costs, by its name. */
export type LeastPrice = (name: string) => number

/** What an expression costs in the best case: whatever the request brings, it is not less. */
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

  /** What comes on top of the weight of the tree: functions that are called, items of macros. */
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
