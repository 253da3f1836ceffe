import {
  type CallNode,
  call,
  type FoldNode,
  INDEX,
  integer,
  mapChildren,
  type Node,
  textOf,
} from '../expression-tree.ts'
import { itemWeight } from './node-weight.ts'

/** Hands a range on after it was accounted: the range, and the steps that each item takes. */
export const ACCOUNTED = '@accounted'
/** Hands a list or map on in which something is looked up that may be a number: in a map it takes long. */
export const INDEXED = '@indexed'
/** A list that macros append to in place; `[]` + `[x]` + `[y]` would copy it for each item. */
export const NEW_LIST = '@list'
export const APPEND = '@append'

/** Bounds what macros cost: each range is accounted for before its first item is looked at. */
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
