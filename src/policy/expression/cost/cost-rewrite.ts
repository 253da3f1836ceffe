import { call, type FoldNode, integer, mapChildren, type Node } from '../expression-tree.ts'
import { itemWeight } from './node-weight.ts'

/** Hands a range on after it was accounted: the range, and the steps that each item takes. */
export const ACCOUNTED = '@accounted'
/** A list that macros append to in place; `[]` + `[x]` + `[y]` would copy it for each item. */
export const NEW_LIST = '@list'
export const APPEND = '@append'

/** Bounds what macros cost: each range is accounted for before its first item is looked at. */
export function rewriteCosts(node: Node): Node {
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
