import type { CheckArguments } from './expression-function.ts'
import { ExpressionProblem } from './expression-problem.ts'
import {
  AND,
  type CallNode,
  CONDITIONAL,
  childrenOf,
  type FoldNode,
  INDEX,
  type Node,
  OR,
  pathOf,
  textOf,
} from './expression-tree.ts'
import { BOOL, canBe, DYN, either, formatType, parseType, type Type } from './expression-type.ts'
import type { Phase } from './phase.ts'

/** One way to call a function; a method's target is its first parameter. */
export interface Overload {
  readonly isMethod: boolean
  readonly parameters: readonly string[]
  readonly result: string
  readonly phases?: readonly Phase[] | undefined
  readonly check?: CheckArguments | undefined
}

/** The names that an expression may use where it stands. */
export interface Scope {
  readonly phase: Phase
  /** The type of a dotted name, or why it cannot be read here. */
  typeOf(path: string): string | NameProblem | undefined
}

/** Why a name is refused; `isForeign` when only the hosted service can judge. */
export interface NameProblem {
  readonly message: string
  readonly isForeign: boolean
}

export interface CheckerOptions {
  readonly scope: Scope
  overloads(name: string): readonly Overload[] | undefined
  /** Runs an expression without variables; answers why it fails. */
  failureOf(constant: Node): string | undefined
}

const TYPE_NAMES = new Set(['bool', 'int', 'uint', 'double', 'string', 'bytes', 'list', 'map'])
const RESERVED = new Set(['actions', 'conn', 'endpoint', 'req', 'res', 'time', 'vars'])
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
 * Finds what is bound to fail: unknown names and functions, operands that no overload takes,
 * constant parts that raise an error. Everything that depends on the request stays `dyn`.
 */
export class ExpressionChecker {
  readonly #options: CheckerOptions

  constructor(options: CheckerOptions) {
    this.#options = options
  }

  /** The type of the whole expression. Throws ExpressionProblem. */
  check(node: Node): Type {
    const type = this.#typeOf(node, new Map())
    this.#refuseFailingConstants(node)
    return type
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
        for (const [key] of node.entries) this.#typeOf(key, locals)
        return {
          name: 'map',
          of: this.#common(
            node.entries.map(([, value]) => value),
            locals,
          ),
        }
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

  /** The longest known name wins; what follows are fields of its value. */
  #nameType(node: Node, locals: Locals): Type {
    const path = pathOf(node)
    const root = path?.split('.', 1)[0] ?? ''
    if (path !== undefined && !locals.has(root)) {
      const known = this.#options.scope.typeOf(path)
      if (typeof known === 'string') return parseType(known)
      if (known) throw new ExpressionProblem(known.message, { ...known, node: node.id })
    }
    if (node.kind === 'name') {
      const local = locals.get(node.name)
      if (local) return local
      if (TYPE_NAMES.has(node.name)) return { name: 'type' }
      throw this.#unknown(node.name, node)
    }
    if (node.kind !== 'select') return DYN
    if (path !== undefined && !locals.has(root) && !this.#hasKnownStart(node.operand)) {
      throw this.#unknown(path, node)
    }
    const operand = this.#typeOf(node.operand, locals)
    if (!canBe(operand, 'map')) {
      throw new ExpressionProblem(`a ${formatType(operand)} has no field ${node.field}`, {
        node: node.id,
      })
    }
    return node.isTest ? BOOL : (operand.of ?? DYN)
  }

  #hasKnownStart(node: Node): boolean {
    const path = pathOf(node)
    if (path === undefined || this.#options.scope.typeOf(path) !== undefined) return true
    return node.kind === 'select' && this.#hasKnownStart(node.operand)
  }

  #unknown(name: string, node: Node): ExpressionProblem {
    return new ExpressionProblem(`${name} is not known here`, { node: node.id, isForeign: true })
  }

  #foldType(node: FoldNode, locals: Locals): Type {
    if (RESERVED.has(node.variable)) {
      throw new ExpressionProblem(`${node.variable} cannot be the variable of a macro`, {
        node: node.id,
      })
    }
    const range = this.#typeOf(node.range, locals)
    if (!canBe(range, 'list') && !canBe(range, 'map')) {
      throw new ExpressionProblem(`a ${formatType(range)} has no items`, { node: node.id })
    }
    const item = range.name === 'list' ? (range.of ?? DYN) : DYN
    const init = this.#typeOf(node.init, locals)
    const inside = new Map([...locals, [node.variable, item], [node.accumulator, init]])
    this.#typeOf(node.condition, inside)
    const step = this.#typeOf(node.step, inside)
    return this.#typeOf(node.result, new Map([...locals, [node.accumulator, step]]))
  }

  #callType(node: CallNode, locals: Locals): Type {
    const qualified = this.#qualifiedName(node)
    if (qualified !== undefined) {
      const overloads = this.#options.overloads(qualified) ?? []
      return this.#overloadType(qualified, node, overloads, locals)
    }
    const [first, second, third] = node.args
    switch (node.name) {
      case AND:
      case OR:
        for (const arg of node.args) this.#require(arg, 'bool', locals)
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
    if (!overloads) {
      const target = node.target && pathOf(node.target)
      const name = target === undefined ? node.name : `${target}.${node.name}`
      throw new ExpressionProblem(`there is no function ${name}()`, {
        node: node.id,
        isForeign: true,
      })
    }
    return this.#overloadType(node.name, node, overloads, locals)
  }

  #itemType(operand: Node, index: Node, locals: Locals): Type {
    const type = this.#typeOf(operand, locals)
    const key = this.#typeOf(index, locals)
    const isList = type.name === 'list'
    if (!canBe(type, 'list') && !canBe(type, 'map')) {
      throw new ExpressionProblem(`a ${formatType(type)} has no items`, { node: operand.id })
    }
    if (isList && !['int', 'uint', 'double', 'dyn'].includes(key.name)) {
      throw new ExpressionProblem(`a list has no item ${textOf(index) ?? `by ${key.name}`}`, {
        node: index.id,
      })
    }
    return type.of ?? DYN
  }

  #require(node: Node, wanted: string, locals: Locals): void {
    const type = this.#typeOf(node, locals)
    if (canBe(type, wanted)) return
    throw new ExpressionProblem(`a ${wanted} is needed, and this is a ${formatType(type)}`, {
      node: node.id,
    })
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
      const list = types.map(formatType).join(', ')
      throw new ExpressionProblem(`${describe(name)} does not take (${list})`, { node: node.id })
    }
    const { phase } = this.#options.scope
    if (!fitting.some(({ phases }) => !phases || phases.includes(phase))) {
      throw new ExpressionProblem(`${describe(name)} cannot be used in ${phase}`, { node: node.id })
    }
    const [problem] = fitting.flatMap(({ check }) => check?.(given) ?? [])
    if (problem !== undefined) throw new ExpressionProblem(problem, { node: node.id })
    return fitting.map(({ result }) => parseType(result)).reduce(either)
  }

  /** Runs the largest parts that depend on nothing. */
  #refuseFailingConstants(node: Node): void {
    if (!this.#isConstant(node)) {
      for (const child of childrenOf(node)) this.#refuseFailingConstants(child)
    } else if (node.kind === 'call') {
      const failure = this.#options.failureOf(node)
      if (failure !== undefined) throw new ExpressionProblem(failure, { node: node.id })
    }
  }

  /** True when nothing below depends on a variable or on the request. */
  #isConstant(node: Node): boolean {
    if (node.kind === 'constant') return true
    if (node.kind === 'name' || node.kind === 'fold') return false
    if (node.kind === 'call') return this.#isConstantCall(node)
    return childrenOf(node).every((child) => this.#isConstant(child))
  }

  #isConstantCall(node: CallNode): boolean {
    const qualified = this.#qualifiedName(node)
    const name = qualified ?? node.name
    const overloads = this.#options.overloads(name) ?? []
    if (name.startsWith('@') || overloads.some(({ phases }) => phases)) return false
    const operands = qualified === undefined ? childrenOf(node) : node.args
    return operands.every((operand) => this.#isConstant(operand))
  }

  /** `json.decode` when that is a function, and not a method of something called `json`. */
  #qualifiedName({ target, name }: CallNode): string | undefined {
    const path = target && pathOf(target)
    const qualified = path === undefined ? undefined : `${path}.${name}`
    return qualified !== undefined && this.#options.overloads(qualified) ? qualified : undefined
  }
}

/** Operators by their sign: `_+_` is `+`. */
function describe(name: string): string {
  const sign = /^_?([^_@\w]+)_$/.exec(name)?.[1]
  return sign ? `the operator ${sign}` : `${name.replace('@', '')}()`
}
