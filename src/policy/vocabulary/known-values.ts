import {
  AND,
  type CallNode,
  CONDITIONAL,
  EQUAL,
  type FoldNode,
  IN,
  NOT,
  type Node,
  OR,
  pathOf,
  UNEQUAL,
} from '../expression/expression-tree.ts'
import { VARIABLES } from './variables.ts'

/** A value that is the same for every request. Maps are only known if they are empty. */
type Known = boolean | string | bigint | readonly (Known | undefined)[]
type Locals = ReadonlyMap<string, Known | undefined>

const EMPTY: readonly never[] = []
/** Functions that are only true for texts that contain the argument. */
const TEXT_TESTS: ReadonlySet<string> = new Set(['startsWith', 'endsWith', 'contains'])
/** Functions of a text that are empty for an empty text. */
const TEXT_CHANGES: ReadonlySet<string> = new Set([
  'lower',
  'lowerAscii',
  'upper',
  'upperAscii',
  'trim',
])
const ORDERS: ReadonlyMap<string, (left: bigint, right: bigint) => boolean> = new Map([
  ['_<_', (left, right) => left < right],
  ['_<=_', (left, right) => left <= right],
  ['_>_', (left, right) => left > right],
  ['_>=_', (left, right) => left >= right],
])

/** Whether variables without data at this gateway make a condition false for every request. */
export function isNeverTrue(condition: Node): boolean {
  return knownValue(condition, new Map()) === false
}

/** Undefined: the value depends on the request, or is not known here. */
function knownValue(node: Node, locals: Locals): Known | undefined {
  switch (node.kind) {
    case 'constant':
      return constantOf(node.value.value)
    case 'list':
      return node.items.map((item) => knownValue(item, locals))
    case 'fold':
      return valueOfFold(node, locals)
    case 'call':
      return valueOfCall(node, locals)
    case 'map':
      return node.entries.length === 0 ? EMPTY : undefined
    default: {
      const path = pathOf(node)
      if (path === undefined) return undefined
      const root = path.split('.', 1)[0] ?? ''
      return locals.has(root) ? locals.get(path) : emptyValueOf(path)
    }
  }
}

function constantOf(value: unknown): Known | undefined {
  const isKnown = ['boolean', 'string', 'bigint'].includes(typeof value)
  return isKnown ? (value as Known) : undefined
}

/** The value of a variable without data. */
function emptyValueOf(path: string): Known | undefined {
  const variable = VARIABLES.get(path)
  if (variable?.noData === undefined) return undefined
  if (variable.type === 'bool') return false
  if (variable.type === 'string') return ''
  return /^(?:list|map)\((?!dyn)/.test(variable.type) ? EMPTY : undefined
}

/** A macro is known if it has no items: `exists` is false then, and `all` is true. */
function valueOfFold({ range, init, result, accumulator }: FoldNode, locals: Locals) {
  const items = knownValue(range, locals)
  if (!Array.isArray(items) || items.length > 0) return undefined
  return knownValue(result, new Map(locals).set(accumulator, knownValue(init, locals)))
}

function valueOfCall(node: CallNode, locals: Locals): Known | undefined {
  const { name, target, args } = node
  if (name.startsWith('@in:') || name.startsWith('@at:')) {
    if (emptyValueOf(name.slice(4)) === undefined) return undefined
    return name.startsWith('@in:') ? false : EMPTY
  }
  const values = (target ? [target, ...args] : args).map((arg) => knownValue(arg, locals))
  const [first, second, third] = values
  switch (name) {
    case NOT:
      return typeof first === 'boolean' ? !first : undefined
    case AND:
      return decided(values, false)
    case OR:
      return decided(values, true)
    case CONDITIONAL:
      if (first !== undefined) return first ? second : third
      return isEqual(second, third) ? second : undefined
    case EQUAL:
      return isEqual(first, second)
    case UNEQUAL: {
      const equal = isEqual(first, second)
      return equal === undefined ? undefined : !equal
    }
    case IN:
      return isIn(first, second)
    case 'size':
      if (Array.isArray(first)) return BigInt(first.length)
      return first === '' ? 0n : undefined
    default:
      return valueOfFunction(name, first, second)
  }
}

function valueOfFunction(name: string, first: Known | undefined, second: Known | undefined) {
  const order = ORDERS.get(name)
  if (order) {
    return typeof first === 'bigint' && typeof second === 'bigint'
      ? order(first, second)
      : undefined
  }
  if (first !== '') return undefined
  if (TEXT_CHANGES.has(name)) return ''
  return TEXT_TESTS.has(name) && typeof second === 'string' ? second === '' : undefined
}

/** The result of operands of which one with this value is enough. */
function decided(values: readonly (Known | undefined)[], enough: boolean): boolean | undefined {
  if (values.includes(enough)) return enough
  return values.includes(undefined) ? undefined : !enough
}

function isEqual(left: Known | undefined, right: Known | undefined): boolean | undefined {
  if (left === undefined || right === undefined) return undefined
  if (!Array.isArray(left) || !Array.isArray(right)) return left === right
  if (left.length !== right.length) return false
  return left.length === 0 ? true : undefined
}

function isIn(item: Known | undefined, list: Known | undefined): boolean | undefined {
  if (!Array.isArray(list)) return undefined
  return decided(
    list.map((one) => isEqual(item, one)),
    true,
  )
}
