import { nearest } from '../../base/nearest.ts'
import type { Phase } from '../phase.ts'
import { misfitAdvice, operandsText, parentOf, truthForm } from './call-advice.ts'
import { canCompare, comparisonProblem, formatNode, quote } from './comparison.ts'
import {
  type CallPlace,
  type FindOverloads,
  isConstant,
  type Overload,
  qualifiedName,
} from './expression-function.ts'
import { ExpressionProblem } from './expression-problem.ts'
import {
  AND,
  type CallNode,
  CONDITIONAL,
  childrenOf,
  type FoldNode,
  findNode,
  IN,
  INDEX,
  type Node,
  OR,
  pathOf,
  type SelectNode,
  startOf,
  textOf,
} from './expression-tree.ts'
import {
  aType,
  BOOL,
  canBe,
  DYN,
  either,
  fieldNames,
  memberType,
  parseType,
  partType,
  type Type,
} from './expression-type.ts'

/** The names that an expression may use where it stands. */
export interface Scope {
  readonly phase: Phase
  /** The type of a dotted name, or why it cannot be read here. */
  typeOf(path: string): string | NameProblem | undefined
  /** Known names, for suggestions after a typing error. */
  names(): Iterable<string>
  /** The right form of an unknown name that people often write: a clause. */
  meant?(path: string): string | undefined
}

/** Why a name is refused; `isForeign` when only the hosted service can judge. */
export interface NameProblem {
  readonly message: string
  readonly isForeign: boolean
}

export interface CheckerOptions {
  readonly scope: Scope
  readonly overloads: FindOverloads
  /** Names of all functions; operators have names with underscores. */
  functionNames(): Iterable<string>
  /** The right form of a call that people often write: a clause. */
  meantCall(node: CallNode, place: CallPlace): string | undefined
  /** The expression as written. Its nodes have the ids of the checked nodes. */
  readonly written: Node
  /** Runs an expression without variables; answers why it fails. */
  failureOf(constant: Node): string | undefined
}

const TYPE_NAMES = new Set([
  ...['bool', 'int', 'uint', 'double', 'string', 'bytes', 'list', 'map', 'null_type', 'type'],
  ...['google.protobuf.Timestamp', 'google.protobuf.Duration'],
])
const RESERVED = new Set(['actions', 'conn', 'endpoint', 'req', 'res', 'secrets', 'time', 'vars'])
const CONSTANT_TYPES: Readonly<Record<string, string>> = {
  boolValue: 'bool',
  bytesValue: 'bytes',
  doubleValue: 'double',
  int64Value: 'int',
  nullValue: 'null_type',
  stringValue: 'string',
  uint64Value: 'uint',
}

type Locals = ReadonlyMap<string, Type>

/**
 * Finds expressions that always fail: unknown names and functions, operands without an overload, and constant
 * parts that raise an error. Everything that depends on the request has the type `dyn`.
 */
export class ExpressionChecker {
  readonly #options: CheckerOptions
  readonly #problems: ExpressionProblem[] = []
  readonly #refused = new Set<Node>()

  constructor(options: CheckerOptions) {
    this.#options = options
  }

  /** The type of the whole expression. Throws ExpressionProblem, with all that is wrong. */
  check(node: Node): Type {
    const type = this.#typeOf(node, new Map())
    this.#refuseFailingConstants(node)
    const [first, ...further] = this.#problems
    if (first) throw new ExpressionProblem(first.message, { ...first, further })
    return type
  }

  /** A refused part has type `dyn`, so that it causes no further problems. */
  #refuse(node: Node, message: string, isForeign = false): Type {
    this.#refused.add(node)
    this.#problems.push(new ExpressionProblem(message, { node: node.id, isForeign }))
    return DYN
  }

  #typeOf(node: Node, locals: Locals): Type {
    switch (node.kind) {
      case 'constant':
        return { name: CONSTANT_TYPES[node.value.case ?? ''] ?? 'dyn' }
      case 'name':
      case 'select':
        return this.#nameType(node, locals)
      case 'list':
        return { name: 'list', of: this.#common(node.items, locals) }
      case 'map': {
        const keys = node.entries.map(([key]) => key)
        const values = node.entries.map(([, value]) => value)
        const key = this.#common(keys, locals)
        return { name: 'map', key, of: this.#common(values, locals) }
      }
      case 'fold':
        return this.#foldType(node, locals)
      case 'call':
        return this.#callType(node, locals)
    }
  }

  #common(nodes: readonly Node[], locals: Locals): Type {
    const types = nodes.map((node) => this.#typeOf(node, locals))
    return types.length === 0 ? DYN : types.reduce(either)
  }

  /** The longest known name wins. The rest are fields of its value. */
  #nameType(node: Node, locals: Locals): Type {
    const path = pathOf(node)
    const root = path?.split('.', 1)[0] ?? ''
    if (path !== undefined && !locals.has(root)) {
      const known = this.#options.scope.typeOf(path)
      if (typeof known === 'string') return parseType(known)
      if (known) return this.#refuse(startOf(node), known.message, known.isForeign)
      if (TYPE_NAMES.has(path)) return { name: 'type' }
    }
    if (node.kind === 'name') {
      const local = locals.get(node.name)
      if (local) return local
      return this.#refuseUnknown(node.name, node)
    }
    if (node.kind !== 'select') return DYN
    if (path !== undefined && !locals.has(root) && !this.#hasKnownStart(node.operand)) {
      return this.#refuseUnknown(path, node)
    }
    const operand = this.#typeOf(node.operand, locals)
    if (!canBe(operand, 'map')) {
      return this.#refuse(
        node,
        `${aType(operand)} has no field ${node.field}${this.#partHint(node)}`,
      )
    }
    return node.isTest ? BOOL : this.#partType(node, operand, node.field)
  }

  #partType(node: Node, whole: Type, field: string | undefined): Type {
    const type = partType(whole, field)
    if (type) return type
    const meant = nearest(field ?? '', fieldNames(whole))
    const hint = meant ? `: did you mean ${meant}?` : ''
    return this.#refuse(node, `${aType(whole)} has no field ${field}${hint}`, true)
  }

  /** What people often look for behind a dot: the length of a text, and fields of the items of a list. */
  #partHint({ operand, field }: SelectNode): string {
    const shown = formatNode(this.#asWritten(operand))
    if (shown === undefined) return ''
    if (/^(?:length|size|count)$/.test(field)) return `: write size(${shown})`
    const of = operand.kind === 'call' && /:.*cookies$/.test(operand.name)
    return of ? `: write ${shown}.exists(c, c.${field} != '')` : ''
  }

  #hasKnownStart(node: Node): boolean {
    const path = pathOf(node)
    if (path === undefined || this.#options.scope.typeOf(path) !== undefined) return true
    return node.kind === 'select' && this.#hasKnownStart(node.operand)
  }

  #refuseUnknown(name: string, node: Node): Type {
    const { scope } = this.#options
    const known = scope.meant?.(name)
    if (known !== undefined)
      return this.#refuse(startOf(node), `unknown name ${name}: ${known}`, true)
    const near = nearest(name, scope.names())
    const isWord = !name.includes('.') && this.#options.written.id !== node.id
    const meant = near ?? (isWord ? `${quote(name)} in quotes` : undefined)
    const hint = meant ? `: did you mean ${meant}?` : ''
    return this.#refuse(startOf(node), `unknown name ${name}${hint}`, true)
  }

  #foldType(node: FoldNode, locals: Locals): Type {
    if (RESERVED.has(node.variable)) {
      return this.#refuse(node, `${node.variable} cannot be used as a macro variable`)
    }
    const range = this.#typeOf(node.range, locals)
    if (!canBe(range, 'list') && !canBe(range, 'map')) {
      this.#refuse(node, `${aType(range)} has no items`)
    }
    const item = memberType(range)
    const init = this.#typeOf(node.init, locals)
    const inside = new Map([...locals, [node.variable, item], [node.accumulator, init]])
    this.#typeOf(node.condition, inside)
    const step = this.#typeOf(node.step, inside)
    return this.#typeOf(node.result, new Map([...locals, [node.accumulator, step]]))
  }

  #callType(node: CallNode, locals: Locals): Type {
    const qualified = qualifiedName(node, this.#options.overloads)
    if (qualified !== undefined) {
      const overloads = this.#options.overloads(qualified) ?? []
      return this.#overloadType(qualified, node, overloads, locals)
    }
    const [first, second, third] = node.args
    switch (node.name) {
      case AND:
      case OR:
        for (const arg of node.args) {
          if (isDecided(node)) this.#typeOf(arg, locals)
          else this.#require(arg, 'bool', locals)
        }
        return BOOL
      case CONDITIONAL: {
        if (!first || !second || !third) return DYN
        this.#require(first, 'bool', locals)
        return either(this.#typeOf(second, locals), this.#typeOf(third, locals))
      }
      case '@not_strictly_false':
        return BOOL
      case INDEX: {
        if (!first || !second) return DYN
        return this.#itemType(first, second, locals)
      }
    }
    const overloads = this.#options.overloads(node.name)
    if (overloads) return this.#overloadType(node.name, node, overloads, locals)
    // A name alone may be the first part of the function's, or the variable of a mistyped macro.
    const isValue = node.target && node.target.kind !== 'name'
    const before = this.#problems.length
    const target = node.target && isValue ? this.#typeOf(node.target, locals) : DYN
    // The function of an unknown value may exist.
    if (this.#problems.length > before) return DYN
    const type = this.#refuseFunction(node, target.name === 'list')
    if (node.args[0]?.kind === 'name') return type
    for (const arg of node.args) this.#typeOf(arg, locals)
    return type
  }

  #refuseFunction(node: CallNode, isList: boolean): Type {
    const { scope, functionNames } = this.#options
    const target = node.target && pathOf(node.target)
    const owner = target === undefined ? undefined : scope.typeOf(target)
    if (typeof owner === 'object') return this.#refuse(node, owner.message, owner.isForeign)
    const name = target === undefined ? node.name : `${target}.${node.name}`
    const written = this.#asWritten(node)
    const variable = this.#calledVariable(name, target)
    const place = { isList, variable, parent: parentOf(this.#options.written, node.id) }
    const known = written.kind === 'call' ? this.#options.meantCall(written, place) : undefined
    const meant = nearest(name, functionNames()) ?? nearest(node.name, functionNames())
    const isMacro = meant === node.name
    const near = isMacro
      ? `write it behind a list, such as [1, 2].${meant}(item, item > 1)`
      : meant && `did you mean ${meant}()?`
    const hint = known ?? near
    const shown = isMacro
      ? `${name}() is no function`
      : variable === name
        ? `${name} is a value, not a function`
        : `unknown function ${name}()`
    return this.#refuse(node, hint ? `${shown}: ${hint}` : shown, true)
  }

  /** The variable that is called like a function: `req.headers('x')`, but not `req.headers.get('x')`. */
  #calledVariable(name: string, target: string | undefined): string | undefined {
    const variable = this.#variableOf(name)
    return target !== undefined && variable === this.#variableOf(target) ? undefined : variable
  }

  /** The variable that a name stands for, or that people mean by it. */
  #variableOf(name: string): string | undefined {
    const { scope } = this.#options
    if (typeof scope.typeOf(name) === 'string') return name
    const meant = /^did you mean ([\w.]+)\?$/.exec(scope.meant?.(name) ?? '')?.[1]
    return meant !== undefined && typeof scope.typeOf(meant) === 'string' ? meant : undefined
  }

  #itemType(operand: Node, index: Node, locals: Locals): Type {
    const type = this.#typeOf(operand, locals)
    const key = this.#typeOf(index, locals)
    const isList = type.name === 'list'
    if (!canBe(type, 'list') && !canBe(type, 'map')) {
      return this.#refuse(operand, `${aType(type)} has no items`)
    }
    if (isList && !['int', 'uint', 'double', 'dyn'].includes(key.name)) {
      return this.#refuse(index, `a list has no item ${textOf(index) ?? `by ${key.name}`}`)
    }
    return this.#partType(index, type, textOf(index))
  }

  #require(node: Node, wanted: string, locals: Locals): void {
    const type = this.#typeOf(node, locals)
    if (canBe(type, wanted)) return
    const truth = wanted === 'bool' ? truthForm(this.#asWritten(node), type) : undefined
    const hint = truth === undefined ? '' : `: write ${truth}`
    this.#refuse(node, `expected a ${wanted}, found ${aType(type)}${hint}`)
  }

  #overloadType(
    name: string,
    node: CallNode,
    overloads: readonly Overload[],
    locals: Locals,
  ): Type {
    const isMethod = node.target !== undefined && name === node.name
    const given = [...(isMethod && node.target ? [node.target] : []), ...node.args]
    const types = given.map((arg) => this.#typeOf(arg, locals))
    const fitting = overloads.filter(
      (overload) =>
        overload.isMethod === isMethod &&
        overload.parameters.length === types.length &&
        overload.parameters.every((wanted, index) => canBe(types[index] ?? DYN, wanted)),
    )
    if (fitting.length === 0) {
      const whole = this.#asWritten(node)
      const advice = misfitAdvice({
        node: whole.kind === 'call' ? whole : node,
        given: given.map((arg) => this.#asWritten(arg)),
        types,
        overloads,
        written: this.#options.written,
      })
      const hint = advice === undefined ? '' : `: ${advice}`
      return this.#refuse(node, `${describe(name)} does not accept (${operandsText(types)})${hint}`)
    }
    const { phase } = this.#options.scope
    if (!fitting.some(({ phases }) => !phases || phases.includes(phase))) {
      return this.#refuse(node, `${describe(name)} cannot be used in ${phase}`)
    }
    const [problem] = fitting.flatMap(({ check }) => check?.(given) ?? [])
    if (problem !== undefined) return this.#refuse(node, problem)
    const [left, right] = types
    if (left && right && !canCompare(name, left, right)) {
      const [first = node, second = node] = given.map((arg) => this.#asWritten(arg))
      const operands = [
        { node: first, type: left },
        { node: second, type: right },
      ] as const
      return this.#refuse(node, comparisonProblem(name, ...operands))
    }
    return fitting.map(({ result }) => parseType(result)).reduce(either)
  }

  #asWritten(node: Node): Node {
    return findNode(this.#options.written, node.id) ?? node
  }

  /** Runs the largest parts that depend on nothing, unless something is wrong with them already. */
  #refuseFailingConstants(node: Node): void {
    if (!isConstant(node, this.#options.overloads) || this.#hasRefused(node)) {
      for (const child of childrenOf(node)) this.#refuseFailingConstants(child)
    } else if (node.kind === 'call') {
      const failure = this.#options.failureOf(node)
      if (failure !== undefined) this.#refuse(node, failure)
    }
  }

  #hasRefused(node: Node): boolean {
    return this.#refused.has(node) || childrenOf(node).some((child) => this.#hasRefused(child))
  }
}

/** Whether a constant side decides the result: `false && …`, `true || …`. */
function isDecided({ name, args }: CallNode): boolean {
  return args.some(
    (arg) =>
      arg.kind === 'constant' &&
      arg.value.case === 'boolValue' &&
      arg.value.value === (name === OR),
  )
}

/**
 * Operators by their sign: `_+_` is `+`. This includes internal operators with a map, such as
 * `@in:req.headers`.
 */
function describe(name: string): string {
  const [operator, map] = name.split(':', 2)
  if (map !== undefined) return operator === IN ? `in ${map}` : `${map}[]`
  const sign = name === IN ? 'in' : /^_?([^_@\w]+)_$/.exec(name)?.[1]
  return sign ? `the operator ${sign}` : `${name.replace('@', '')}()`
}
