import {
  type CallNode,
  call,
  countNodes,
  type FoldNode,
  IN,
  INDEX,
  integer,
  mapChildren,
  type Node,
  pathOf,
  text,
} from './expression-tree.ts'
import { SORT_BY } from './functions/lists.ts'
import { contains, LENIENT_MAPS, lookUp } from './functions/requests.ts'

/** Asks whether a variable with a dotted name has a value. */
export const IS_KNOWN = '@is_known'
/** Hands a range on after it was accounted: the range, and the nodes that run for each item. */
export const ACCOUNTED = '@accounted'
/** A list that macros append to in place; `[]` + `[x]` + `[y]` would copy it for each item. */
export const NEW_LIST = '@list'
export const APPEND = '@append'

/**
 * Gives the expression the meaning that policies have beyond the language: lenient maps, `has()`
 * of an index, `sortBy`, and `actions.svc` for `actions.ngrok`. Throws Error with a sentence.
 */
export function rewriteMeaning(node: Node, isVariable: (path: string) => boolean): Node {
  const again = (child: Node) => rewriteMeaning(child, isVariable)
  const { id } = node
  switch (node.kind) {
    case 'select': {
      const map = pathOf(node.operand)
      if (map !== undefined && LENIENT_MAPS.has(map)) {
        return call(id, node.isTest ? contains(map) : lookUp(map), [text(id, node.field)])
      }
      if (node.isTest && isVariable(`${map}.${node.field}`)) {
        return call(id, IS_KNOWN, [text(id, `${map}.${node.field}`)])
      }
      if (map === 'actions' && node.field === 'svc') {
        return { ...node, field: 'ngrok' }
      }
      return mapChildren(node, again)
    }
    case 'call':
      return rewriteCall(node, again)
    default:
      return mapChildren(node, again)
  }
}

function rewriteCall(node: CallNode, again: (child: Node) => Node): Node {
  const { id, name, args } = node
  const [first, second] = args
  if (name === INDEX && first && second) {
    const map = pathOf(first)
    if (map !== undefined && LENIENT_MAPS.has(map)) return call(id, lookUp(map), [again(second)])
  }
  if (name === IN && first && second) {
    const map = pathOf(second)
    if (map !== undefined && LENIENT_MAPS.has(map)) return call(id, contains(map), [again(first)])
  }
  if (name === 'has' && !node.target && args.length === 1) {
    if (first?.kind === 'select') return again({ ...first, isTest: true })
    if (first?.kind === 'call' && first.name === INDEX && first.args[0] && first.args[1]) {
      return again(call(id, IN, [first.args[1], first.args[0]]))
    }
    throw new Error('has() takes a field or a key, such as has(vars.tier)')
  }
  if (name === 'sortBy' && node.target && second && first?.kind === 'name') {
    const target = again(node.target)
    return call(id, SORT_BY, [target, mapOver(id, target, first.name, again(second))])
  }
  return mapChildren(node, again)
}

/** What the parser makes of `range.map(variable, value)`. */
function mapOver(id: bigint, range: Node, variable: string, value: Node): FoldNode {
  const accumulator = '@result'
  const result: Node = { kind: 'name', id, name: accumulator }
  return {
    kind: 'fold',
    id,
    variable,
    accumulator,
    range,
    init: { kind: 'list', id, items: [] },
    condition: { kind: 'constant', id, value: { case: 'boolValue', value: true } },
    step: call(id, '_+_', [result, { kind: 'list', id, items: [value] }]),
    result,
  }
}

/** Bounds what macros cost: each range is accounted for before its first item is looked at. */
export function rewriteCosts(node: Node): Node {
  if (node.kind !== 'fold') return mapChildren(node, rewriteCosts)
  const { id } = node
  const weight = countNodes(node.step) + countNodes(node.condition)
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
