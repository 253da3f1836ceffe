import { EQUAL, IN, INDEX, type Node, UNEQUAL } from './expression-tree.ts'
import { aType, canEqual, DYN, memberType, type Type } from './expression-type.ts'

/** Longest excerpt in a sentence. */
const MAX_LENGTH = 80

/** A node as source text; undefined if it is long or has operators. */
export function formatNode(node: Node): string | undefined {
  const source = format(node)
  return source !== undefined && source.length <= MAX_LENGTH ? source : undefined
}

function format(node: Node): string | undefined {
  switch (node.kind) {
    case 'constant':
      return formatConstant(node.value)
    case 'name':
      return node.name
    case 'select': {
      const operand = format(node.operand)
      if (operand === undefined || node.isTest) return undefined
      return node.isIndex ? `${operand}[${quote(node.field)}]` : `${operand}.${node.field}`
    }
    case 'list': {
      const items = formatAll(node.items)
      return items && `[${items}]`
    }
    case 'call': {
      if (node.name === INDEX) {
        const [operand, index] = node.args.map(format)
        return operand && index && `${operand}[${index}]`
      }
      const args = formatAll(node.args)
      if (args === undefined) return undefined
      if (!/^\w+$/.test(node.name) || node.name.startsWith('_')) return undefined
      if (!node.target) return `${node.name}(${args})`
      const target = format(node.target)
      return target && `${target}.${node.name}(${args})`
    }
    default:
      return undefined
  }
}

function formatAll(nodes: readonly Node[]): string | undefined {
  const parts = nodes.map(format)
  return parts.includes(undefined) ? undefined : parts.join(', ')
}

function formatConstant(value: Extract<Node, { kind: 'constant' }>['value']): string | undefined {
  switch (value.case) {
    case 'stringValue':
      return quote(value.value)
    case 'uint64Value':
      return `${value.value}u`
    case 'doubleValue':
      return Number.isInteger(value.value) ? value.value.toFixed(1) : String(value.value)
    case 'nullValue':
      return 'null'
    case 'int64Value':
    case 'boolValue':
      return String(value.value)
    default:
      return undefined
  }
}

/** A text as a constant. */
export function quote(text: string): string {
  return `'${text.replace(/[\\']/g, '\\$&').replace(/\n/g, '\\n')}'`
}

const SIGNS: Readonly<Record<string, string>> = { [EQUAL]: '==', [UNEQUAL]: '!=', [IN]: 'in' }
const COOKIES: ReadonlySet<string> = new Set(['cookie', 'set_cookie'])
const NUMBERS: ReadonlySet<string> = new Set(['int', 'uint', 'double'])
/** Types that `string(…)` accepts. */
const PRINTED: ReadonlySet<string> = new Set([...NUMBERS, 'bool', 'timestamp', 'duration'])

/** A part of an expression as it was written, and its type. */
interface Operand {
  readonly node: Node
  readonly type: Type
}

/** Whether the language can compare these types. Other operators are not checked here. */
export function canCompare(operator: string, left: Type, right: Type): boolean {
  if (SIGNS[operator] === undefined) return true
  return canEqual(left, operator === IN ? memberType(right) : right)
}

/** Message about a comparison that is never true, with the right form if there is one. */
export function comparisonProblem(operator: string, left: Operand, right: Operand): string {
  const sign = SIGNS[operator] ?? operator
  const [first, second] = [aType(left.type), aType(right.type)]
  const form = operator === IN ? membershipForm(left, right) : equalityForm(left, right, sign)
  const isKey = operator === IN && right.type.name === 'map'
  const what =
    operator === IN
      ? `in cannot find ${first} in ${isKey ? `the keys of ${second}` : second}`
      : `${sign} cannot compare ${first} with ${second}`
  return form === undefined ? what : `${what}: write ${form}`
}

function equalityForm(left: Operand, right: Operand, sign: string): string | undefined {
  const whole = (a: string | undefined, b: string | undefined) =>
    a === undefined || b === undefined ? undefined : `${knownFirst(a)}${a} ${sign} ${b}`
  const [first, second] = [formatNode(left.node), formatNode(right.node)]
  if (left.type.name === 'null_type') return emptyForm(right, sign)
  if (right.type.name === 'null_type') return emptyForm(left, sign)
  return (
    itemForm(left, right, sign) ??
    itemForm(right, left, sign) ??
    whole(first, literalAs(right.node, left.type)) ??
    whole(literalAs(left.node, right.type), second) ??
    whole(valueAs(left, right.type), second) ??
    whole(first, valueAs(right, left.type))
  )
}

function membershipForm(item: Operand, container: Operand): string | undefined {
  const items = container.node.kind === 'list' ? container.node.items : []
  const fitting = items.flatMap((node) => literalAs(node, item.type) ?? [])
  if (fitting.length > 0 && fitting.length === items.length) {
    const first = formatNode(item.node)
    return first && `${first} in [${fitting.join(', ')}]`
  }
  const wanted = memberType(container.type)
  const second = formatNode(container.node)
  if (item.type.name === 'list' && canEqual(item.type.of ?? DYN, wanted)) {
    const list = formatNode(item.node)
    return list && second && `${list}.exists(v, v in ${second})`
  }
  const first = literalAs(item.node, wanted) ?? valueAs(item, wanted)
  return first && second && `${first} in ${second}`
}

/** The question whether a number has a value, for the only ones that an ordinary request may not have. */
export const knownFirst = (name: string): string =>
  /^re[qs]\.content_length$/.test(name) ? `has(${name}) && ` : ''

/** Texts, lists and maps are never null, but they may be empty. */
function emptyForm({ node, type }: Operand, sign: string): string | undefined {
  const source = formatNode(node)
  if (source === undefined) return undefined
  if (type.name === 'string') return `${source} ${sign} ''`
  return type.name === 'list' || type.name === 'map' ? `size(${source}) ${sign} 0` : undefined
}

/** The test of a list for an item. It is false for an empty list, where the first item would fail. */
function itemForm(list: Operand, item: Operand, sign: string): string | undefined {
  const [of, one] = [formatNode(list.node), formatNode(item.node)]
  const { type } = list
  if (type.name !== 'list' || of === undefined || one === undefined) return undefined
  const not = sign === '!=' ? '!' : ''
  if (COOKIES.has(type.of?.record ?? '') && item.type.name === 'string') {
    return `${not}${of}.exists(c, c.value == ${one})`
  }
  if (!canEqual(type.of ?? item.type, item.type)) return undefined
  // Other maps fail for a key that they do not have.
  const { node } = list
  const isStrict = node.kind === 'select' && node.isIndex && !/^re[qs]\./.test(of)
  const map = isStrict ? formatNode(node.operand) : undefined
  if (isStrict && map !== undefined) {
    return `${not}(${quote(node.field)} in ${map} && ${one} in ${of})`
  }
  return not ? `!(${one} in ${of})` : `${one} in ${of}`
}

/** A constant as source text in another type. */
export function literalAs(node: Node, wanted: Type): string | undefined {
  if (node.kind !== 'constant') return undefined
  const { value } = node
  const text = String(value.value)
  if (value.case === 'stringValue') return textAs(text, wanted)
  if (wanted.name === 'string' && value.case !== 'bytesValue') return `'${text}'`
  return NUMBERS.has(wanted.name) ? textAs(text, wanted) : undefined
}

function textAs(text: string, { name }: Type): string | undefined {
  const isWhole = /^-?\d{1,18}$/.test(text)
  switch (name) {
    case 'int':
      return isWhole ? text : undefined
    case 'uint':
      return isWhole && !text.startsWith('-') ? `${text}u` : undefined
    case 'double':
      if (isWhole) return `${text}.0`
      return /^-?\d+\.\d+$/.test(text) ? text : undefined
    case 'bool':
      return text === 'true' || text === 'false' ? text : undefined
    case 'timestamp':
    case 'duration':
      return `${name}('${text}')`
    default:
      return undefined
  }
}

/** Source text of a value in another type, if every value can be converted. */
function valueAs({ node, type }: Operand, wanted: Type): string | undefined {
  const source = formatNode(node)
  if (source === undefined) return undefined
  const converts =
    wanted.name === 'string'
      ? PRINTED.has(type.name)
      : wanted.name === 'double' && NUMBERS.has(type.name)
  return converts ? `${wanted.name}(${source})` : undefined
}
