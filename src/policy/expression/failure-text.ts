import { MASK, maskedValue } from '../../base/masked-text.ts'
import { formatNode } from './comparison.ts'
import {
  type CallNode,
  childrenOf,
  findNode,
  INDEX,
  mapChildren,
  type Node,
  pathOf,
  startOf,
  textOf,
} from './expression-tree.ts'
import { listSize } from './value.ts'

/** Characters of a value that are shown. */
const MAX_SHOWN = 60

/** Values of requests by the map that holds them: what is missing if the list is empty. */
const HELD: ReadonlyMap<string, string> = new Map([
  ['req.headers', 'the request has no header'],
  ['req.trailers', 'the request has no trailer'],
  ['req.cookies', 'the request has no cookie'],
  ['req.url.query_params', 'the request has no query parameter'],
  ['res.headers', 'the response has no header'],
  ['res.trailers', 'the response has no trailer'],
  ['res.cookies', 'the response has no cookie'],
  ['getReqHeader', 'the request has no header'],
  ['getReqCookie', 'the request has no cookie'],
  ['getQueryParam', 'the request has no query parameter'],
  ['getResHeader', 'the response has no header'],
  ['getResCookie', 'the response has no cookie'],
])
/** Look-ups in the maps of a request have these names in the compiled form. */
const LOOK_UP = /^@at:(.+)$/
const CONVERSIONS: ReadonlyMap<string, string> = new Map([
  ['int', 'a whole number'],
  ['uint', 'a whole number of 0 or more'],
  ['double', 'a number'],
  ['bool', 'true or false'],
  ['timestamp', 'a timestamp, such as 2026-01-31T12:00:00Z'],
  ['duration', 'a duration, such as 90s'],
])
const DIVISIONS: ReadonlySet<string> = new Set(['_/_', '_%_'])

/** An expression that failed, and the part that failed. */
export interface Failure {
  readonly form: Node
  /** Id of the part; undefined if it is not known. */
  readonly node: bigint | undefined
  /** The library's message. */
  readonly message: string
  /** The value of a part; undefined if it has none alone. */
  readonly valueAt: (part: Node) => unknown
}

/** Says which part of an expression failed, and with which value. Secret-like values are masked. */
export function failureText({ form, node, message, valueAt }: Failure): string {
  const absent = /unresolved attribute/.test(message) ? absentName(form, node) : undefined
  if (absent !== undefined) return `there is no ${absent}. Ask has(${absent}) first`
  const named = node === undefined ? undefined : findNode(form, node)
  const part = named ?? unnamedPart(form, valueAt)
  const shown = part && formatNode(asWritten(part))
  const text = (part?.kind === 'call' && causeIn(part, message, valueAt)) || ownWords(message)
  return shown === undefined ? text : `\`${shown}\` failed: ${text}`
}

/** The whole name that begins at a node. */
function absentName(form: Node, id: bigint | undefined): string | undefined {
  if (pathOf(form) !== undefined) return startOf(form).id === id ? pathOf(form) : undefined
  for (const child of childrenOf(form)) {
    const found = absentName(child, id)
    if (found !== undefined) return found
  }
  return undefined
}

/** Messages of the library may show secret values, or say nothing to readers. */
function ownWords(message: string): string {
  if (/zero/.test(message)) return 'a divisor is 0'
  const isOfLibrary = /out of bounds|cannot convert|not found|no such|failed to|RE2/i.test(message)
  return isOfLibrary ? 'a value does not fit' : message
}

/** The library does not say where conversions and divisions fail. */
function unnamedPart(node: Node, valueAt: Failure['valueAt']): Node | undefined {
  if (node.kind === 'fold') return undefined
  for (const child of childrenOf(node)) {
    const found = unnamedPart(child, valueAt)
    if (found) return found
  }
  if (node.kind !== 'call') return undefined
  if (!CONVERSIONS.has(node.name) && !DIVISIONS.has(node.name)) return undefined
  const fails = valueAt(node) === undefined && node.args.every((arg) => valueAt(arg) !== undefined)
  return fails ? node : undefined
}

function causeIn(part: CallNode, message: string, valueAt: Failure['valueAt']): string | undefined {
  const { name, target, args } = part
  const [first, second] = args
  if (name === INDEX && first && second) return missingItem(first, second, valueAt)
  if (DIVISIONS.has(name) && second) return 'the divisor is 0'
  const wanted = target ? undefined : CONVERSIONS.get(name)
  const isConstant = first?.kind === 'constant'
  if (wanted !== undefined && isConstant) return `${formatNode(first)} is not ${wanted}`
  const [operand, value] = textAmong([target, first], valueAt)
  if (!operand || value === undefined) return undefined
  const shown = formatNode(asWritten(operand)) ?? 'its value'
  const found = `${shown} is ${shownValue(operand, value)}`
  if (wanted !== undefined) return `${found}, not ${wanted}`
  if (/RE2/.test(message)) return 'the pattern is not a valid RE2 expression'
  return `${ownWords(message)}: ${found}`
}

/** The first operand that is a text of the request. */
function textAmong(
  operands: readonly (Node | undefined)[],
  valueAt: Failure['valueAt'],
): readonly [Node, string] | readonly [] {
  for (const operand of operands) {
    const value = operand && operand.kind !== 'constant' ? valueAt(operand) : undefined
    if (operand && typeof value === 'string') return [operand, value]
  }
  return []
}

function missingItem(list: Node, index: Node, valueAt: Failure['valueAt']): string {
  const value = valueAt(list)
  const length = listSize(value)
  const held = heldIn(list)
  const key = held && (textOf(held.key) ?? valueAt(held.key))
  if (held && length === 0 && typeof key === 'string') {
    const isWritten = held.key.kind === 'constant'
    return `${held.missing} ${isWritten ? key.slice(0, MAX_SHOWN) : shownValue(held.key, key)}`
  }
  const shown = formatNode(asWritten(list)) ?? 'the value'
  if (length === undefined) return `${shown} has no such key`
  const at = valueAt(index)
  return `${shown} has ${length} ${length === 1 ? 'item' : 'items'}, so there is no item ${at}`
}

/** The map of a request that a list comes from, and its key. */
function heldIn(node: Node): { readonly missing: string; readonly key: Node } | undefined {
  if (node.kind !== 'call' || node.target) return undefined
  const missing = HELD.get(LOOK_UP.exec(node.name)?.[1] ?? node.name)
  const [key] = node.args
  return missing !== undefined && key ? { missing, key } : undefined
}

/** The name that says whether a value is secret: of the header, cookie or parameter. */
function nameOf(node: Node): string {
  const held = heldIn(node)
  if (held) return textOf(held.key) ?? 'secret'
  if (node.kind === 'select') return `${nameOf(node.operand)}.${node.field}`
  if (node.kind === 'name') return node.name
  const first = node.kind === 'call' ? (node.target ?? node.args[0]) : undefined
  return first ? nameOf(first) : ''
}

/** Values of variables may come from secrets, so only values of the exchange are shown. */
function isOfExchange(node: Node): boolean {
  const path = pathOf(node)
  if (path !== undefined) return /^(?:req|res|conn)\./.test(path)
  return node.kind !== 'fold' && childrenOf(node).every(isOfExchange)
}

function shownValue(node: Node, value: string): string {
  const masked = isOfExchange(node) ? maskedValue(nameOf(node), value) : MASK
  if (masked === MASK) return MASK
  return masked.length > MAX_SHOWN ? `'${masked.slice(0, MAX_SHOWN)}…'` : `'${masked}'`
}

/** The tree with look-ups as their author wrote them. */
function asWritten(node: Node): Node {
  const inner = mapChildren(node, asWritten)
  if (inner.kind !== 'call') return inner
  const path = LOOK_UP.exec(inner.name)?.[1]
  const [key] = inner.args
  if (path === undefined || !key) return inner
  const [root = '', ...fields] = path.split('.')
  const { id } = inner
  const map = fields.reduce<Node>(
    (operand, field) => ({ kind: 'select', id, operand, field, isTest: false }),
    { kind: 'name', id, name: root },
  )
  return { kind: 'call', id, name: INDEX, target: undefined, args: [map, key] }
}
