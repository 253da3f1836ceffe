import { parseDuration } from '../../../base/clock.ts'
import { refuseOversizeTree } from '../../../policy/expression/expression.ts'
import { ExpressionProblem } from '../../../policy/expression/expression-problem.ts'
import {
  AND,
  type CallNode,
  CONDITIONAL,
  call,
  IN,
  INDEX,
  integer,
  type Node,
  OR,
  pathOf,
  text,
  textOf,
} from '../../../policy/expression/expression-tree.ts'
import {
  adviceOn,
  CONSTANT_KINDS,
  EQUATED,
  type Fields,
  isThere,
  type Kind,
  ORDERED,
  readField,
  SHOWN,
} from './fields.ts'

const DAY_MS = 86_400_000
const TIME = /^(\d{4}-\d\d-\d\d)(?:Z|(T\d\d:\d\d:\d\d(?:\.\d+)?(?:Z|[+-]\d\d:\d\d)))?$/i
const SHIFT = /^(?:(\d+)d)?(.*)$/

/**
 * Milliseconds since the epoch of an RFC 3339 time, or of a date, which begins in UTC. Undefined for other
 * text.
 */
function parseTime(text: string): number | undefined {
  const [, date = '', time = 'T00:00:00Z'] = TIME.exec(text) ?? []
  const ms = Date.parse(`${date}${time}`.toUpperCase())
  return Number.isNaN(ms) ? undefined : ms
}

/** Milliseconds of a duration that may begin with days: `7d`, `1d12h`, `15m`; else undefined. */
function parseShift(text: string): number | undefined {
  const [, days, rest = ''] = SHIFT.exec(text) ?? []
  const restMs = days !== undefined && rest === '' ? 0 : parseDuration(rest)
  return restMs === undefined ? undefined : Number(days ?? 0) * DAY_MS + restMs
}

const FUNCTIONS = new Set([
  ...['size', 'contains', 'startsWith', 'endsWith'],
  ...['has', 'timestamp', 'add', 'subtract'],
])
const OPERATORS = '==, !=, <, <=, >, >=, in, &&, ||, !'
const ALLOWED = `${OPERATORS}, size(), contains(), startsWith(), endsWith(), has() and timestamp()`

/** A problem of a filter's part. The position of a dotted name is its start. */
function refusal(node: Node, message: string): ExpressionProblem {
  if (node.kind === 'select') return refusal(node.operand, message)
  return new ExpressionProblem(message, { node: node.id })
}

/** `what`: subject and verb, such as `an index is`. */
function unsupported(node: Node, what: string): ExpressionProblem {
  return refusal(node, `${what} not supported; filters support ${ALLOWED}`)
}

function unsupportedCall(node: CallNode): ExpressionProblem {
  const { name } = node
  if (name === INDEX) return unsupported(node, 'an index is')
  if (name === CONDITIONAL) return unsupported(node, 'the operator ?: is')
  if (!/[a-z]/i.test(name)) return unsupported(node, `arithmetic with ${signOf(name)} is`)
  return unsupported(node, FUNCTIONS.has(name) ? `${name}() in this form is` : `${name}() is`)
}

/** Operators by their sign: `_<_` is `<`. */
function signOf(name: string): string {
  return name.replaceAll('_', '')
}

const EQUAL = '_==_'
const DIFFERENT = '_!=_'
const NOT = '!_'
const ORDERS = new Set(['_<_', '_<=_', '_>_', '_>=_'])
const NOW = 'time.now'
/** A part of a filter that was found good. */
interface Part {
  readonly kind: Kind
  readonly form: Node
  /** Dotted name, when it is a field. */
  readonly path?: string
  /** Milliseconds since the epoch, when it is a time that was written out. */
  readonly ms?: number
}

/**
 * Reads a filter. It finds unsupported syntax, unknown fields and invalid comparisons, and makes the form
 * that runs. Times become numbers, and `== null` checks whether a text or list is empty.
 */
export class FilterReader {
  readonly #fields: Fields
  readonly #now: number

  constructor(fields: Fields, now: number) {
    this.#fields = fields
    this.#now = now
  }

  /** The form of a whole filter. Throws ExpressionProblem. */
  read(tree: Node): Node {
    const { kind, form } = this.#part(tree)
    if (kind !== 'bool') {
      throw refusal(tree, `a filter must be true or false, not ${SHOWN[kind]}`)
    }
    refuseOversizeTree(form)
    return form
  }

  #part(node: Node): Part {
    switch (node.kind) {
      case 'constant': {
        const kind = CONSTANT_KINDS[node.value.case ?? '']
        if (!kind) throw refusal(node, 'bytes are not supported: write a string')
        return { kind, form: node }
      }
      case 'name':
      case 'select':
        return this.#field(node)
      case 'list':
        if (node.items.length === 0) return { kind: 'list', form: node }
        throw refusal(node, 'a list is only allowed to the right of in')
      case 'map':
        throw unsupported(node, 'a map is')
      case 'fold':
        throw unsupported(node, 'macros are')
      case 'call':
        return this.#call(node)
    }
  }

  #field(node: Node & { kind: 'name' | 'select' }): Part {
    const isTest = node.kind === 'select' && node.isTest
    const path = isTest ? pathOf({ ...node, isTest: false }) : pathOf(node)
    if (path === undefined) throw unsupported(node, 'a field of a value is')
    if (path === NOW && !isTest) return this.#time(node, this.#now)
    if (path !== 'obj' && !path.startsWith('obj.')) {
      throw refusal(node, `unknown name ${path}: the fields are ${this.#fieldsBelow('')}`)
    }
    const name = path.slice('obj.'.length)
    const kind = this.#fields.get(name)
    if (!kind) throw this.#noField(node, name)
    if (isTest) return { kind: 'bool', form: isThere(node.id, name) }
    return { kind, form: readField(node.id, name, kind), path: name }
  }

  #noField(node: Node, name: string): ExpressionProblem {
    const parent = name.includes('.') ? name.slice(0, name.lastIndexOf('.')) : ''
    const kind = this.#fields.get(parent)
    if (parent !== '' && !kind) return this.#noField(node, parent)
    if (kind && kind !== 'object') {
      return refusal(node, `obj.${parent} is ${SHOWN[kind]} and has no fields`)
    }
    const siblings = this.#fieldsBelow(parent)
    if (siblings === '') return refusal(node, `obj.${parent} has no fields, it is always null`)
    const what = name === '' ? 'a field of obj is required' : `unknown field obj.${name}`
    return refusal(node, `${what}; the fields are ${siblings}`)
  }

  #fieldsBelow(parent: string): string {
    const start = parent === '' ? '' : `${parent}.`
    const names = [...this.#fields.keys()].filter(
      (name) => name.startsWith(start) && !name.includes('.', start.length),
    )
    return names.map((name) => `obj.${name}`).join(', ')
  }

  #call(node: CallNode): Part {
    const part = this.#operation(node) ?? this.#function(node)
    if (!part) throw unsupportedCall(node)
    return part
  }

  #operation(node: CallNode): Part | undefined {
    const { id, name, args } = node
    const [left, right] = args
    if (name === AND || name === OR || name === NOT) {
      const operands = args.map((arg) => this.#condition(arg))
      return bool(call(id, name, operands))
    }
    if (!left || !right) return undefined
    if (name === IN) return this.#membership(node, this.#part(left), right)
    if (name === EQUAL || name === DIFFERENT) {
      return this.#equality(node, this.#part(left), this.#part(right))
    }
    if (!ORDERS.has(name)) return undefined
    return this.#comparison(node, this.#part(left), this.#part(right), ORDERED)
  }

  #function(node: CallNode): Part | undefined {
    const { name, target, args } = node
    const [first, second, third] = target ? [target, ...args] : args
    if (!first || third) return undefined
    switch (name) {
      case 'size':
        return second ? undefined : this.#size(node, this.#part(first))
      case 'timestamp':
        return second || target ? undefined : this.#timestamp(node, first)
      case 'contains':
      case 'startsWith':
      case 'endsWith':
        if (!target || !second) return undefined
        return this.#textTest(node, this.#part(first), this.#part(second))
      case 'add':
      case 'subtract':
        return target && second ? this.#moved(node, this.#part(first), second) : undefined
      default:
        return undefined
    }
  }

  #condition(node: Node): Node {
    const { kind, form } = this.#part(node)
    if (kind === 'bool') return form
    throw refusal(node, `expected true or false, found ${SHOWN[kind]}`)
  }

  #equality(node: CallNode, left: Part, right: Part): Part {
    const isEmpty = emptiness(node.id, left, right) ?? emptiness(node.id, right, left)
    if (isEmpty) return bool(node.name === EQUAL ? isEmpty : call(node.id, NOT, [isEmpty]))
    return this.#comparison(node, left, right, EQUATED)
  }

  #comparison(node: CallNode, left: Part, right: Part, kinds: readonly Kind[]): Part {
    if (left.kind !== right.kind || !kinds.includes(left.kind)) {
      const message = `${describe(left)} and ${describe(right)} cannot be compared with ${signOf(node.name)}`
      throw refusal(node, message + adviceOn(left.kind, right.kind))
    }
    return bool(call(node.id, node.name, [left.form, right.form]))
  }

  #membership(node: CallNode, left: Part, right: Node): Part {
    if (right.kind !== 'list') {
      const list = this.#part(right)
      if (list.kind === 'texts' && left.kind === 'text') {
        return bool(call(node.id, IN, [left.form, list.form]))
      }
      const message = `in cannot find ${describe(left)} in ${describe(list)}`
      throw refusal(node, `${message}: in needs a literal list, or a string and a list of strings`)
    }
    const members = right.items.map((item) => this.#part(item))
    const isFit = ({ kind, path }: Part) => kind === left.kind && path === undefined
    if (!EQUATED.includes(left.kind) || !members.every(isFit)) {
      const message = `in cannot find ${describe(left)} in this list`
      throw refusal(node, `${message}: in needs a value and constants of the same type`)
    }
    const list: Node = { ...right, items: members.map(({ form }) => form) }
    return bool(call(node.id, IN, [left.form, list]))
  }

  #size(node: CallNode, part: Part): Part {
    if (part.kind !== 'text' && part.kind !== 'texts' && part.kind !== 'list') {
      throw refusal(node, `size() needs a string or a list, found ${describe(part)}`)
    }
    return { kind: 'number', form: call(node.id, 'size', [part.form]) }
  }

  #textTest(node: CallNode, target: Part, part: Part): Part {
    if (target.kind !== 'text' || part.kind !== 'text') {
      const message = `${node.name}() needs two strings, found ${describe(target)} and ${describe(part)}`
      throw refusal(node, target.kind === 'texts' ? `${message}: use in for a list` : message)
    }
    return bool(call(node.id, node.name, [part.form], target.form))
  }

  #timestamp(node: CallNode, argument: Node): Part {
    const written = textOf(argument)
    if (written === undefined) {
      const part = this.#part(argument)
      if (part.kind === 'time') return part
      throw refusal(
        argument,
        `timestamp() needs a string, time.now or a time, not ${describe(part)}`,
      )
    }
    const ms = parseTime(written)
    if (ms !== undefined) return this.#time(node, ms)
    throw refusal(argument, 'not a valid time: write a time such as "2030-01-31T09:00:00Z"')
  }

  #moved(node: CallNode, target: Part, argument: Node): Part {
    if (target.ms === undefined) {
      throw refusal(node, `${node.name}() needs timestamp(time.now) or a literal time`)
    }
    const written = textOf(argument)
    const ms = written === undefined ? undefined : parseShift(written)
    if (ms === undefined) {
      throw refusal(argument, `${node.name}() needs a duration such as "7d", "24h" or "15m"`)
    }
    return this.#time(node, target.ms + (node.name === 'add' ? ms : -ms))
  }

  #time({ id }: Node, ms: number): Part {
    const form: Node = { kind: 'constant', id, value: { case: 'doubleValue', value: ms } }
    return { kind: 'time', form, ms }
  }
}

const bool = (form: Node): Part => ({ kind: 'bool', form })

/** A check for an empty field, if its comparison with null, `""` or `[]` means that. */
function emptiness(id: bigint, { kind, path, form }: Part, other: Part): Node | undefined {
  if (path === undefined) return undefined
  const isNull = other.kind === 'null'
  const isBlank = isNull || textOf(other.form) === ''
  switch (kind) {
    case 'text':
      return isNull ? call(id, EQUAL, [form, text(id, '')]) : undefined
    case 'texts':
    case 'list':
      if (!isBlank && other.form.kind !== 'list') return undefined
      return call(id, EQUAL, [call(id, 'size', [form]), integer(id, 0)])
    case 'time':
    case 'object':
      return isBlank ? call(id, NOT, [isThere(id, path)]) : undefined
    default:
      return isNull ? call(id, NOT, [isThere(id, path)]) : undefined
  }
}

function describe({ kind, path }: Part): string {
  return path === undefined ? SHOWN[kind] : `obj.${path} (${SHOWN[kind]})`
}
