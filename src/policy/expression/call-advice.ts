import { formatNode, knownFirst, literalAs } from './comparison.ts'
import type { Overload } from './expression-function.ts'
import {
  type CallNode,
  childrenOf,
  EQUAL,
  IN,
  NOT,
  type Node,
  pathOf,
  UNEQUAL,
} from './expression-tree.ts'
import { canBe, DYN, formatType, type Type } from './expression-type.ts'

/** A call that no overload takes, as it was written. */
export interface MisfitCall {
  readonly node: CallNode
  readonly given: readonly Node[]
  readonly types: readonly Type[]
  readonly overloads: readonly Overload[]
  /** The whole expression. */
  readonly written: Node
}

const ORDERS: ReadonlyMap<string, string> = new Map([
  ['_<_', '<'],
  ['_<=_', '<='],
  ['_>_', '>'],
  ['_>=_', '>='],
])
const TIMESTAMP = 'timestamp'
/** Most forms of a function in one sentence. */
const MAX_FORMS = 3

/** The right form of a call with the wrong operands, if there is one: a clause. */
export function misfitAdvice(call: MisfitCall): string | undefined {
  const { node, given, types } = call
  const [first, second] = given
  const sign = ORDERS.get(node.name)
  if (sign !== undefined && first && second) return orderForm(call, sign)
  if (node.name === IN && first && second) return withinForm(first, second, types)
  if (node.name === NOT && first) return negationForm(node, call.written, types[0] ?? DYN)
  if (node.name.startsWith('_') || node.name.startsWith('@')) return undefined
  return methodForm(call) ?? formsOf(call)
}

/** A text is compared with a number: the text becomes a number. */
function orderForm({ given, types }: MisfitCall, sign: string): string | undefined {
  const [first, second] = given
  const [left, right] = types
  if (!first || !second || !left || !right) return undefined
  const [a, b] = [formatNode(first), formatNode(second)]
  if (left.name === 'string' && right.name === TIMESTAMP && a !== undefined && b !== undefined) {
    return `write timestamp(${a}) ${sign} ${b}`
  }
  if (left.name === 'string' && right.name !== 'string') return undefined
  const number = literalAs(second, left)
  if (a !== undefined && number !== undefined) return `write ${knownFirst(a)}${a} ${sign} ${number}`
  const other = literalAs(first, right)
  return b !== undefined && other !== undefined
    ? `write ${knownFirst(b)}${other} ${sign} ${b}`
    : undefined
}

/** `'a' in text` is a question for a part of it; `text in 'GET'` one for a list. */
function withinForm(first: Node, second: Node, types: readonly Type[]): string | undefined {
  if (types[0]?.name !== 'string' || types[1]?.name !== 'string') return undefined
  const [item, whole] = [formatNode(first), formatNode(second)]
  if (item === undefined || whole === undefined) return undefined
  return second.kind === 'constant'
    ? `write ${item} in [${whole}]`
    : `write ${whole}.contains(${item})`
}

/** `!a == b` denies `a` alone. */
function negationForm(node: CallNode, written: Node, type: Type): string | undefined {
  const parent = parentOf(written, node.id)
  const [operand] = node.args
  const value = operand && formatNode(operand)
  if (parent?.kind === 'call' && (parent.name === EQUAL || parent.name === UNEQUAL) && value) {
    const [left, right] = parent.args
    const other = left?.id === node.id && right ? formatNode(right) : undefined
    if (other === undefined) return undefined
    if (type.name === 'list') return `write !(${other} in ${value})`
    return `write ${value} ${parent.name === EQUAL ? '!=' : '=='} ${other}`
  }
  const truth = operand && truthForm(operand, type)
  return truth && `write !(${truth})`
}

/** The part of an expression around another part. */
export function parentOf(node: Node, id: bigint): Node | undefined {
  for (const child of childrenOf(node)) {
    if (child.id === id) return node
    const found = parentOf(child, id)
    if (found) return found
  }
  return undefined
}

/** A value as a question that is true or false; undefined if there is no usual one. */
export function truthForm(node: Node, { name }: Type): string | undefined {
  const shown = formatNode(node)
  if (shown === undefined || node.kind === 'constant') return undefined
  switch (name) {
    case 'list':
    case 'map':
      return `size(${shown}) > 0`
    case 'string':
      return `${shown} != ''`
    case 'int':
      return `${knownFirst(shown)}${shown} != 0`
    default:
      return undefined
  }
}

/** A function as a method, a method as a function, or a method of each item of a list. */
function methodForm({ node, given, types, overloads }: MisfitCall): string | undefined {
  const { name, target, args } = node
  const list = (nodes: readonly Node[]) => {
    const parts = nodes.map(formatNode)
    return parts.includes(undefined) ? undefined : parts.join(', ')
  }
  const fits = (wanted: boolean, of: readonly Type[]) =>
    overloads.some(
      ({ isMethod, parameters }) =>
        isMethod === wanted &&
        parameters.length === of.length &&
        parameters.every((parameter, index) => canBe(of[index] ?? DYN, parameter)),
    )
  const all = list(given)
  if (all === undefined) return undefined
  if (target && fits(false, types)) return `write ${name}(${all})`
  const [first, ...others] = given
  const owner = first && formatNode(first)
  const rest = list(others)
  if (!target && owner !== undefined && rest !== undefined && fits(true, types)) {
    return `write ${owner}.${name}(${rest})`
  }
  const [own, ...further] = types
  if (target && own?.name === 'string' && fits(true, [{ name: TIMESTAMP }, ...further])) {
    return `write timestamp(${owner}).${name}(${rest ?? ''})`
  }
  if (target && own?.name === 'list' && fits(true, [own.of ?? DYN, ...further])) {
    const question = `v.${name}(${list(args)})`
    const isTest = overloads.some(({ result }) => result === 'bool')
    return `write ${owner}.${isTest ? 'exists' : 'map'}(v, ${question})`
  }
  return undefined
}

/** The operands that a function takes. */
function formsOf({ node, given, overloads }: MisfitCall): string | undefined {
  // A function with a dotted name, such as secrets.get.
  const isQualified = node.target !== undefined && given.length === node.args.length
  const owner = isQualified && node.target ? `${pathOf(node.target)}.` : ''
  const forms = overloads.map(({ isMethod, parameters }) => {
    const [own, ...others] = parameters
    const list = (isMethod ? others : parameters).join(', ')
    return isMethod ? `${own}.${node.name}(${list})` : `${owner}${node.name}(${list})`
  })
  const unique = Array.from(new Set(forms))
  if (unique.length === 0 || unique.length > MAX_FORMS) return undefined
  return `it is written ${unique.join(' or ')}`
}

/** Words for the operands of a call. */
export const operandsText = (types: readonly Type[]): string => types.map(formatType).join(', ')
