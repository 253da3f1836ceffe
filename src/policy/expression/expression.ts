import {
  type CelFunc,
  CelScalar,
  type CelType,
  type CelValue,
  celEnv,
  celError,
  celFunc,
  celList,
  celMethod,
  isCelError,
  listType,
  mapType,
  objectType,
  parse,
  plan,
} from '@bufbuild/cel'
import { strings } from '@bufbuild/cel/ext'
import { BoundedCache } from '../../base/bounded-cache.ts'
import type { Clock } from '../../base/clock.ts'
import { CompiledExpression, type TypedForm } from './compiled-expression.ts'
import { ACCOUNTED, APPEND, NEW_LIST, rewriteCosts } from './cost-rewrite.ts'
import { Evaluation, EvaluationError } from './evaluation.ts'
import { ExpressionChecker, type Scope } from './expression-check.ts'
import type { CheckArguments, ExpressionFunction, ParameterType } from './expression-function.ts'
import { refuseOversizeSource, refuseOversizeTree } from './expression-limits.ts'
import { ExpressionProblem } from './expression-problem.ts'
import { type Node, writeTree } from './expression-tree.ts'
import { checkFormat } from './format-check.ts'
import { IS_KNOWN, type Meaning } from './meaning.ts'
import type { Overload } from './overload.ts'
import { ParsedSource } from './parsed-source.ts'
import type { Value } from './value.ts'
import type { Variable } from './variable.ts'

/** Characters per step of functions of the library that go through a text one by one. */
const SLOW_CHARACTERS = 4
/** Functions of the library that work through all of their operands. */
const LINEAR = new Set([
  '@in',
  '_+_',
  'bytes',
  'string',
  ...Array.from(strings, ({ name }) => name),
])
const SIZED = new Set(['string', 'bytes', 'list'])

const LIST = listType(CelScalar.DYN)
const MAP = mapType(CelScalar.STRING, CelScalar.DYN)
const TYPES: Readonly<Record<ParameterType, CelType>> = {
  bool: CelScalar.BOOL,
  int: CelScalar.INT,
  uint: CelScalar.UINT,
  double: CelScalar.DOUBLE,
  string: CelScalar.STRING,
  bytes: CelScalar.BYTES,
  dyn: CelScalar.DYN,
  list: LIST,
  map: MAP,
  timestamp: objectType('google.protobuf.Timestamp'),
  duration: objectType('google.protobuf.Duration'),
}
const OVERLOAD_NAMES: Readonly<Record<string, string>> = {
  'google.protobuf.Timestamp': 'timestamp',
  'google.protobuf.Duration': 'duration',
}

/** What reads like a function and is none. */
const MACROS = ['all', 'exists', 'exists_one', 'filter', 'has', 'map']

/** Checks of written-out arguments for functions of the library. */
const CHECKS: Readonly<Record<string, CheckArguments>> = { format: checkFormat }

/** Nothing beyond the language. */
const PLAIN: Meaning = { macros: [], rewrite: (tree) => tree }

export interface ExpressionLanguageOptions<Subject> {
  readonly clock: Clock
  readonly functions: readonly ExpressionFunction<Subject>[]
  readonly variables: ReadonlyMap<string, Variable<Subject>>
  /** That of the language unless given. */
  readonly meaning?: Meaning
  /** How many sources are kept parsed; 1,000 unless given. */
  readonly maxParsed?: number
}

/** Compiles expressions over a set of variables and functions. Building one takes about 2 ms. */
export class ExpressionLanguage<Subject> {
  readonly #evaluation: Evaluation<Subject>
  readonly #variables: ReadonlyMap<string, Variable<Subject>>
  readonly #meaning: Meaning
  readonly #environment: ReturnType<typeof celEnv>
  readonly #overloads: ReadonlyMap<string, readonly Overload[]>
  readonly #activation: Record<string, never>
  /** Devices bind the same policies again and again, and parsing is the most of it. */
  readonly #parsed: BoundedCache<ParsedSource>

  constructor(options: ExpressionLanguageOptions<Subject>) {
    const { clock, functions, variables, meaning = PLAIN, maxParsed = 1_000 } = options
    this.#parsed = new BoundedCache((source) => new ParsedSource(source, parse), maxParsed)
    this.#evaluation = new Evaluation<Subject>(clock)
    this.#variables = variables
    this.#meaning = meaning
    this.#environment = celEnv({
      funcs: [
        ...strings,
        ...this.#accountedFunctions(),
        ...functions.map((definition) => this.#adapt(definition)),
        ...this.#macroFunctions(),
      ],
    })
    this.#overloads = this.#collectOverloads(functions)
    this.#activation = this.#createActivation()
  }

  /** Throws ExpressionProblem for everything that is bound to fail, before it runs. */
  compile(source: string, scope: Scope): CompiledExpression<Subject> {
    return this.compileAs(source, (tree) => {
      const form = this.#meaning.rewrite(tree, (path) => this.#variables.has(path))
      refuseOversizeTree(form)
      const checker = new ExpressionChecker({
        scope,
        written: tree,
        overloads: (name) => this.#overloads.get(name),
        functionNames: () => this.#functionNames(),
        failureOf: (constant) => this.#failureOf(constant),
      })
      return { form, type: checker.check(form) }
    })
  }

  /** Compiles what `read` makes of the parsed source; the problems that it throws get their place. */
  compileAs(source: string, read: (tree: Node) => TypedForm): CompiledExpression<Subject> {
    refuseOversizeSource(source)
    const parsed = this.#parsed.get(source)
    try {
      const { form, type } = read(parsed.tree)
      return new CompiledExpression({ source, form, type, run: this.#plan(form) })
    } catch (error) {
      if (!(error instanceof ExpressionProblem)) throw new ExpressionProblem(messageOf(error))
      throw parsed.placed(error)
    }
  }

  /** Planned when it runs for the first time: most expressions are only ever checked. */
  #plan(form: Node): (subject: Subject | undefined) => Value {
    let run: ReturnType<typeof plan> | undefined
    return (subject) => {
      run ??= plan(this.#environment, writeTree(rewriteCosts(form)))
      this.#evaluation.begin(subject)
      const result = withoutStacks(() => run?.(this.#activation))
      if (isCelError(result)) {
        const { isOverspent } = this.#evaluation
        throw new EvaluationError(result.message, { isOverspent })
      }
      return result as Value
    }
  }

  #functionNames(): string[] {
    const functions = Array.from(this.#overloads.keys()).filter(isWord)
    return [...MACROS, ...this.#meaning.macros, ...functions]
  }

  #failureOf(constant: Node): string | undefined {
    try {
      this.#plan(constant)(undefined)
      return undefined
    } catch (error) {
      return messageOf(error)
    }
  }

  /** An object whose properties are computed when an expression reads them. */
  #createActivation(): Record<string, never> {
    const activation = Object.create(null)
    for (const [name, { read }] of this.#variables) {
      const get = () => read(this.#evaluation.subject, this.#evaluation)
      Object.defineProperty(activation, name, { get })
    }
    return activation
  }

  #adapt({ name, isMethod, parameters, run }: ExpressionFunction<Subject>): CelFunc {
    const types = parameters.map((parameter) => TYPES[parameter])
    const [target = CelScalar.DYN, ...rest] = types
    const accounted = (args: CelValue[]) => {
      this.#evaluation.spend(lengthOf(args) >> 5)
      return run(this.#evaluation, ...(args as Value[])) as CelValue
    }
    if (!isMethod) return celFunc(name, types, CelScalar.DYN, (...args) => accounted(args))
    return celMethod(name, target, rest, CelScalar.DYN, function (this: CelValue, ...args) {
      return accounted([this, ...args])
    })
  }

  /** Functions of the library that work through their operands, with an account. */
  #accountedFunctions(): CelFunc[] {
    const evaluation = this.#evaluation
    const all = Array.from(celEnv({ funcs: strings }).funcs)
    return all.flatMap((func) => {
      const types = [...(func.target ? [func.target] : []), ...func.arguments]
      const isLinear = LINEAR.has(func.name) && types.some(({ name }) => SIZED.has(name))
      if (!isLinear) return []
      const run = (target: CelValue | undefined, args: CelValue[]) => {
        const length = lengthOf(target === undefined ? args : [target, ...args])
        evaluation.spend(length / SLOW_CHARACTERS)
        const result = func.call(0, target, args)
        if (result === undefined || isCelError(result)) throw celError(result ?? 'no overload')
        return result
      }
      if (!func.target) {
        return celFunc(func.name, func.arguments, func.result, (...args) => run(undefined, args))
      }
      return celMethod(func.name, func.target, func.arguments, func.result, function (...args) {
        return run(this, args)
      })
    })
  }

  /** What the rewritten forms of macros and `has()` call. */
  #macroFunctions(): CelFunc[] {
    const growing = new WeakMap<object, CelValue[]>()
    return [
      celFunc(ACCOUNTED, [CelScalar.DYN, CelScalar.INT], CelScalar.DYN, (range, weight) => {
        this.#evaluation.spend(lengthOf([range]) * Number(weight))
        return range
      }),
      celFunc(NEW_LIST, [], LIST, () => {
        const items: CelValue[] = []
        const list = celList(items)
        growing.set(list, items)
        return list
      }),
      celFunc(APPEND, [LIST, CelScalar.DYN], LIST, (list, item) => {
        growing.get(list)?.push(item)
        return list
      }),
      celFunc(IS_KNOWN, [CelScalar.STRING], CelScalar.BOOL, (name) => {
        return this.#activation[name] !== undefined
      }),
    ]
  }

  #collectOverloads(functions: readonly ExpressionFunction<Subject>[]): Map<string, Overload[]> {
    const own = new Map(functions.map((definition) => [signatureOf(definition), definition]))
    const overloads = new Map<string, Overload[]>()
    for (const func of this.#environment.funcs) {
      const types = [...(func.target ? [func.target] : []), ...func.arguments]
      const overload = {
        isMethod: func.target !== undefined,
        parameters: types.map(({ name }) => OVERLOAD_NAMES[name] ?? name),
        result: OVERLOAD_NAMES[func.result.name] ?? func.result.name,
      }
      const definition = own.get(signatureOf({ name: func.name, ...overload }))
      const { result = overload.result, phases, check = CHECKS[func.name] } = definition ?? {}
      const list = overloads.get(func.name) ?? []
      overloads.set(func.name, [...list, { ...overload, result, phases, check }])
    }
    return overloads
  }
}

/**
 * Errors are values in expressions: `||` and macros absorb them, thousands if need be, and to
 * record the stack of each would take longer than all the rest.
 */
function withoutStacks<T>(run: () => T): T {
  const { stackTraceLimit } = Error
  Error.stackTraceLimit = 0
  try {
    return run()
  } finally {
    Error.stackTraceLimit = stackTraceLimit
  }
}

/** Operators and rewritten forms have other names. */
const isWord = (name: string) => /^[A-Za-z]/.test(name)

function lengthOf(values: readonly CelValue[]): number {
  let length = 0
  for (const value of values) {
    if (typeof value === 'string' || value instanceof Uint8Array) length += value.length
    else if (typeof value === 'object' && value !== null && 'size' in value) length += value.size
  }
  return length
}

/** What tells overloads of one name apart. */
function signatureOf(overload: {
  readonly name: string
  readonly isMethod: boolean
  readonly parameters: readonly string[]
}): string {
  return `${overload.isMethod ? '.' : ''}${overload.name}(${overload.parameters.join()})`
}

function messageOf(error: unknown): string {
  return error instanceof Error ? error.message : String(error)
}
