import type { Evaluation } from '../expression/evaluation.ts'
import {
  type ExpressionFunction,
  fnWithin,
  method,
  methodWithin,
} from '../expression/expression-function.ts'
import { EvaluationError } from '../expression/expression-problem.ts'
import { isList, type ListValue, toJson, type Value } from '../expression/value.ts'

/** `list.sortBy(x, key)` is rewritten to this: the list, and the key of each item. */
export const SORT_BY = '@sort_by'

const MAX_RANGE = 10_000n
/** For each item that is made or moved, and for each comparison. */
const RANGE_STEPS = 1.2
const FLATTEN_STEPS = 0.9
const NESTED_STEPS = 4
const COMPARE_STEPS = 0.5

export const LIST_FUNCTIONS: readonly ExpressionFunction[] = [
  fnWithin('lists.range', ['int'], 'list(int)', (evaluation, count) => {
    if (count < 0n || count > MAX_RANGE) {
      throw new EvaluationError(`lists.range accepts 0 to ${MAX_RANGE}`)
    }
    evaluation.spend(RANGE_STEPS * Number(count))
    return Array.from({ length: Number(count) }, (_, index) => BigInt(index))
  }),
  method('slice', ['list', 'int', 'int'], 'list', (list, from, to) => {
    if (from < 0n || to < from || to > BigInt(list.size)) {
      throw new EvaluationError(`slice(${from}, ${to}) is outside a list of ${list.size} items`)
    }
    return Array.from(list).slice(Number(from), Number(to))
  }),
  methodWithin('flatten', ['list'], 'list', (evaluation, list) => flatten(evaluation, list, 1)),
  methodWithin('flatten', ['list', 'int'], 'list', (evaluation, list, depth) => {
    if (depth < 0n) throw new EvaluationError('the depth of flatten must be at least 0')
    return flatten(evaluation, list, Number(depth))
  }),
  method('distinct', ['list'], 'list', (list) => {
    const seen = new Map<string, Value>()
    for (const item of list) {
      const key = `${kindOf(item)}${JSON.stringify(toJson(item))}`
      if (!seen.has(key)) seen.set(key, item)
    }
    return Array.from(seen.values())
  }),
  methodWithin('sort', ['list'], 'list', (evaluation, list) => sortBy(evaluation, list, list)),
  fnWithin(SORT_BY, ['list', 'list'], 'list', sortBy),
]

function flatten(evaluation: Evaluation, list: ListValue, depth: number): Value[] {
  evaluation.spend(FLATTEN_STEPS * list.size)
  const flat: Value[] = []
  for (const item of list) {
    if (depth > 0 && isList(item)) {
      evaluation.spend(NESTED_STEPS)
      flat.push(...flatten(evaluation, item, depth - 1))
    } else {
      flat.push(item)
    }
  }
  return flat
}

function sortBy(evaluation: Evaluation, list: ListValue, keys: ListValue): Value[] {
  evaluation.spend(COMPARE_STEPS * list.size * Math.log2(list.size + 2))
  const pairs = Array.from(list, (item, index) => ({ item, key: keys.get(index) ?? null }))
  const kinds = new Set(pairs.map(({ key }) => kindOf(key)))
  if (kinds.size > 1 || kinds.has('other')) {
    throw new EvaluationError('only numbers, strings or booleans of the same type can be sorted')
  }
  return pairs.sort((a, b) => compare(a.key as string, b.key as string)).map(({ item }) => item)
}

function compare(a: string, b: string): number {
  if (a === b) return 0
  return a < b ? -1 : 1
}

/** Integers and doubles are one kind: CEL compares numbers across types. */
function kindOf(value: Value): string {
  const type = typeof value
  if (type === 'bigint' || type === 'number') return 'number'
  return type === 'object' ? 'other' : type
}
