import { formatNode } from './expression-source.ts'
import { EQUAL, IN, type Node, UNEQUAL } from './expression-tree.ts'
import { aType, canEqual, memberType, type Type } from './expression-type.ts'

const SIGNS: Readonly<Record<string, string>> = { [EQUAL]: '==', [UNEQUAL]: '!=', [IN]: 'in' }
const NUMBERS: ReadonlySet<string> = new Set(['int', 'uint', 'double'])
/** What `string(…)` takes. */
const PRINTED: ReadonlySet<string> = new Set([...NUMBERS, 'bool', 'timestamp', 'duration'])

/** A part of an expression as it was written, and its type. */
export interface Operand {
  readonly node: Node
  readonly type: Type
}

/** Whether the language compares values of these types; other operators take what they take. */
export function canCompare(operator: string, left: Type, right: Type): boolean {
  if (SIGNS[operator] === undefined) return true
  return canEqual(left, operator === IN ? memberType(right) : right)
}

/** What is wrong with a comparison that would never be true, and the right form if there is one. */
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
    a === undefined || b === undefined ? undefined : `${a} ${sign} ${b}`
  const [first, second] = [formatNode(left.node), formatNode(right.node)]
  if (left.type.name === 'null_type') return whole(emptyForm(right), '0')
  if (right.type.name === 'null_type') return whole(emptyForm(left), '0')
  return (
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
  const first = literalAs(item.node, wanted) ?? valueAs(item, wanted)
  const second = formatNode(container.node)
  return first && second && `${first} in ${second}`
}

/** A list or map is never null, but it may be empty. */
function emptyForm({ node, type }: Operand): string | undefined {
  const source = formatNode(node)
  return source && (type.name === 'list' || type.name === 'map') ? `size(${source})` : undefined
}

/** A constant as it is written in another type. */
function literalAs(node: Node, wanted: Type): string | undefined {
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

/** A value of another type: the first item of a list, or what a conversion makes of it. */
function valueAs({ node, type }: Operand, wanted: Type): string | undefined {
  const source = formatNode(node)
  if (source === undefined) return undefined
  if (type.name === 'list' && canEqual(type.of ?? wanted, wanted)) return `${source}[0]`
  const converts =
    wanted.name === 'string'
      ? PRINTED.has(type.name)
      : NUMBERS.has(wanted.name) && (NUMBERS.has(type.name) || type.name === 'string')
  return converts ? `${wanted.name}(${source})` : undefined
}
