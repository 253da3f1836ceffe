import {
  type CelFunc,
  type CelResult,
  CelScalar,
  celEnv,
  celFunc,
  isCelError,
  parse,
  plan,
} from '@bufbuild/cel'
import { BoundedCache } from '../../base/bounded-cache.ts'
import type { Clock } from '../../base/clock.ts'
import { Account, MAX_EXPRESSION_STEPS, type Prices } from './account.ts'
import {
  AccountedFunctions,
  ERROR_STEPS,
  isMisfit,
  overloadOf,
  signatureOf,
} from './accounted-functions.ts'
import { CompiledExpression, type TypedForm } from './compiled-expression.ts'
import { Evaluation } from './evaluation.ts'
import { ExpressionChecker, type Scope } from './expression-check.ts'
import {
  type CheckArguments,
  type Dialect,
  type ExpressionFunction,
  IS_KNOWN,
  type Overload,
  type Variable,
} from './expression-function.ts'
import { EvaluationError, ExpressionProblem } from './expression-problem.ts'
import { countNodes, foldDepth, type Node, textOf, writeTree } from './expression-tree.ts'
import { failureText } from './failure-text.ts'
import { LeastSteps, rewriteCosts, weightOf } from './node-weight.ts'
import { ParsedSource } from './parsed-source.ts'
import type { Value } from './value.ts'

const MAX_SOURCE = 4_096
const MAX_TOKENS = 600
const MAX_NESTING = 32
const MAX_NODES = 600
const MAX_FOLD_DEPTH = 2

const TOKEN = /[A-Za-z_]\w*|[\d.]+|"(?:[^"\\]|\\.)*"|'(?:[^'\\]|\\.)*'|[^\s\w]/g

/** Keeps sources from the parser that it would take long for. Throws ExpressionProblem. */
export function refuseOversizeSource(source: string): void {
  if (source.length > MAX_SOURCE) {
    throw new ExpressionProblem(`more than ${MAX_SOURCE} characters`)
  }
  let tokens = 0
  let nesting = 0
  for (const [token] of source.matchAll(TOKEN)) {
    tokens += 1
    if (tokens > MAX_TOKENS) throw new ExpressionProblem(`more than ${MAX_TOKENS} tokens`)
    if (token === '(' || token === '[' || token === '{') nesting += 1
    if (token === ')' || token === ']' || token === '}') nesting -= 1
    if (nesting > MAX_NESTING) {
      throw new ExpressionProblem(`brackets are nested more than ${MAX_NESTING} levels deep`)
    }
  }
}

/** Bounds the lowest cost of an evaluation. Throws ExpressionProblem. */
export function refuseOversizeTree(tree: Node): void {
  if (countNodes(tree) > MAX_NODES) {
    throw new ExpressionProblem(`more than ${MAX_NODES} parts`)
  }
  if (foldDepth(tree) > MAX_FOLD_DEPTH) {
    throw new ExpressionProblem(`macros are nested more than ${MAX_FOLD_DEPTH} levels deep`)
  }
}

/** A clause of `format()`, or a percent sign. */
const CLAUSE = /%(?:\.\d+)?(.)?/gs
const KINDS = 'sdfebxXo'

/** Finds problems of `'text'.format([…])` with constant operands. */
function checkFormat([text, values]: readonly Node[]): string | undefined {
  const source = textOf(text)
  if (source === undefined) return undefined
  const kinds = Array.from(source.matchAll(CLAUSE), ([, kind = '']) => kind)
  const clauses = kinds.filter((kind) => kind !== '%')
  const unknown = clauses.find((kind) => kind === '' || !KINDS.includes(kind))
  if (unknown !== undefined) return `format() has no clause %${unknown}`
  if (values?.kind !== 'list' || values.items.length === clauses.length) return undefined
  return `format() has ${clauses.length} clauses for ${values.items.length} values`
}

/** Macros: they look like functions. */
const MACROS = ['all', 'exists', 'exists_one', 'filter', 'has', 'map']

/** Checks of written-out arguments for functions of the library. */
const CHECKS: Readonly<Record<string, CheckArguments>> = { format: checkFormat }

/** Nothing beyond the language. */
const PLAIN: Dialect = { macros: [], rewrite: (tree) => tree }

interface ExpressionLanguageOptions<Subject> {
  readonly clock: Clock
  readonly functions: readonly ExpressionFunction<Subject>[]
  readonly variables: ReadonlyMap<string, Variable<Subject>>
  /** Prices of the functions, and of language functions whose time depends on their operands. */
  readonly prices: Prices
  /** Budget of a subject's expressions. Default: each expression has its own. */
  readonly accountOf?: (subject: Subject) => Account
  /** That of the language unless given. */
  readonly meaning?: Dialect
  /** How many sources are kept parsed; 1,000 unless given. */
  readonly maxParsed?: number
}

/** How a tree runs. */
interface Planned {
  readonly leastSteps: number
  /** The value or the library's error. Throws EvaluationError when the budget is spent. */
  readonly evaluate: (subject: unknown, account: Account) => CelResult
  readonly run: (subject: unknown, account: Account) => Value
  readonly prepare: () => void
}

/** Compiles expressions over a set of variables and functions. Building one takes about 2 ms. */
export class ExpressionLanguage<Subject> {
  readonly #evaluation: Evaluation<Subject>
  readonly #variables: ReadonlyMap<string, Variable<Subject>>
  readonly #accountOf: (subject: Subject) => Account
  readonly #meaning: Dialect
  readonly #environment: ReturnType<typeof celEnv>
  readonly #overloads: ReadonlyMap<string, readonly Overload[]>
  readonly #leastSteps: LeastSteps
  readonly #activation: Record<string, never>
  /**
   * Parsed sources. Devices bind the same policies again and again, and a source has one meaning everywhere.
   * Its compiled form is kept with its tree.
   */
  readonly #parsed: BoundedCache<ParsedSource>
  readonly #forms = new WeakMap<Node, Node>()
  readonly #plans = new WeakMap<Node, Planned>()

  constructor(options: ExpressionLanguageOptions<Subject>) {
    const { clock, functions, variables, prices, meaning = PLAIN, maxParsed = 1_000 } = options
    this.#parsed = new BoundedCache((source) => new ParsedSource(source, parse), maxParsed)
    this.#evaluation = new Evaluation<Subject>(clock)
    this.#accountOf = options.accountOf ?? (() => new Account())
    this.#variables = variables
    this.#meaning = meaning
    const accounted = new AccountedFunctions(this.#evaluation, prices)
    const all = [
      ...accounted.ofLanguage(),
      ...functions.map((definition) => accounted.own(definition)),
      ...accounted.ofMacros(),
      this.#isKnown(),
    ]
    const names = new Set(all.map(({ name }) => name))
    const misfits = Array.from(names, (name) => accounted.misfit(name))
    this.#environment = celEnv({ funcs: [...all, ...misfits] })
    this.#overloads = this.#collectOverloads(functions)
    const leastPrices = this.#collectLeastPrices(accounted)
    const find = (name: string) => this.#overloads.get(name)
    this.#leastSteps = new LeastSteps(find, (name) => leastPrices.get(name) ?? 0)
    this.#activation = this.#createActivation()
  }

  /**
   * Throws ExpressionProblem for everything that always fails. `constants` pays for values that are computed
   * now.
   */
  compile(source: string, scope: Scope, constants = new Account()): CompiledExpression<Subject> {
    return this.compileAs(source, (tree) => {
      const form = this.#formOf(tree)
      const checker = new ExpressionChecker({
        scope,
        written: tree,
        overloads: (name) => this.#overloads.get(name),
        functionNames: () => this.#functionNames(),
        meantCall: (node, place) => this.#meaning.meantCall?.(node, place),
        failureOf: (constant) => this.#failureOf(constant, constants),
      })
      const type = checker.check(form)
      this.#refuseCostly(form)
      return { form, type }
    })
  }

  /** Compiles the result of `read`. Its problems get their positions. */
  compileAs(source: string, read: (tree: Node) => TypedForm): CompiledExpression<Subject> {
    const parsed = this.#parse(source)
    try {
      const { form, type } = read(parsed.tree)
      const { leastSteps, run, prepare } = this.#planOf(form)
      return new CompiledExpression<Subject>({
        source,
        form,
        type,
        leastSteps,
        run: (subject) => run(subject, this.#accountOf(subject)),
        prepare,
        pay: (subject, price, value) => this.#accountOf(subject).pay(price, [value]),
      })
    } catch (error) {
      if (!(error instanceof ExpressionProblem)) throw new ExpressionProblem(messageOf(error))
      throw parsed.placed(error)
    }
  }

  /** Does the slow part of a compile that will follow. The compile reports the problems. */
  prepare(source: string): void {
    try {
      this.#parse(source)
    } catch (error) {
      if (!(error instanceof ExpressionProblem)) throw error
    }
  }

  /** A source as it was written, and positions in it. Throws ExpressionProblem. */
  written(source: string): ParsedSource {
    return this.#parse(source)
  }

  #parse(source: string): ParsedSource {
    refuseOversizeSource(source)
    return this.#parsed.get(source)
  }

  #formOf(tree: Node): Node {
    const known = this.#forms.get(tree)
    if (known) return known
    const form = this.#meaning.rewrite(tree, (path) => this.#variables.has(path))
    refuseOversizeTree(form)
    this.#forms.set(tree, form)
    return form
  }

  #planOf(form: Node): Planned {
    const planned = this.#plans.get(form) ?? this.#plan(form)
    this.#plans.set(form, planned)
    return planned
  }

  /** Planned when it runs for the first time: most expressions are only ever checked. */
  #plan(form: Node): Planned {
    const weight = weightOf(form)
    let planned: ReturnType<typeof plan> | undefined
    const prepare = () => {
      planned ??= plan(this.#environment, writeTree(rewriteCosts(form)))
      return planned
    }
    const evaluate = (subject: unknown, account: Account): CelResult => {
      const evaluatePlan = prepare()
      this.#evaluation.setSubject(subject as Subject | undefined, account)
      account.hold()
      return withoutStacks(() => {
        try {
          account.spend(weight)
          return evaluatePlan(this.#activation)
        } finally {
          account.release()
        }
      })
    }
    const run = (subject: unknown, account: Account): Value => {
      const result = evaluate(subject, account)
      if (isCelError(result)) {
        const { isOverspent } = account
        const { message, exprId: node } = result
        const valueAt = (part: Node) => this.#valueAt(part, subject, account)
        const text = isOverspent ? message : failureText({ form, node, message, valueAt })
        throw new EvaluationError(text, { isOverspent })
      }
      return result as Value
    }
    return { leastSteps: this.#leastSteps.of(form), evaluate, run, prepare }
  }

  /** The value of a part that an error is about; undefined if it has none outside of its macro. */
  #valueAt(part: Node, subject: unknown, account: Account): unknown {
    try {
      const value = this.#planOf(part).evaluate(subject, account)
      return isCelError(value) ? undefined : value
    } catch {
      return undefined
    }
  }

  #refuseCostly(form: Node): void {
    const { leastSteps: steps } = this.#planOf(form)
    if (steps <= MAX_EXPRESSION_STEPS) return
    const message = `it takes at least ${Math.ceil(steps)} steps; the limit is ${MAX_EXPRESSION_STEPS}`
    throw new ExpressionProblem(message)
  }

  #functionNames(): string[] {
    const functions = Array.from(this.#overloads.keys()).filter(isWord)
    return [...MACROS, ...this.#meaning.macros, ...functions]
  }

  #failureOf(constant: Node, account: Account): string | undefined {
    try {
      account.beginStretch()
      this.#planOf(constant).run(undefined, account)
      return undefined
    } catch (error) {
      return messageOf(error)
    }
  }

  /** An object with properties that are computed when an expression reads them. */
  #createActivation(): Record<string, never> {
    const activation = Object.create(null)
    for (const [name, { read }] of this.#variables) {
      const get = () => {
        const value = read(this.#evaluation.subject, this.#evaluation)
        if (value === undefined) this.#evaluation.spend(ERROR_STEPS)
        return value
      }
      Object.defineProperty(activation, name, { get })
    }
    return activation
  }

  /** Called by the rewritten `has()`. */
  #isKnown(): CelFunc {
    return celFunc(IS_KNOWN, [CelScalar.STRING], CelScalar.BOOL, (name) => {
      return this.#activation[name] !== undefined
    })
  }

  #collectLeastPrices(accounted: AccountedFunctions<Subject>): Map<string, number> {
    const all = Array.from(this.#environment.funcs).filter((func) => !isMisfit(func))
    const byName = new Map<string, CelFunc[]>()
    for (const func of all) byName.set(func.name, [...(byName.get(func.name) ?? []), func])
    return new Map(Array.from(byName, ([name, funcs]) => [name, accounted.leastPriceOf(funcs)]))
  }

  #collectOverloads(functions: readonly ExpressionFunction<Subject>[]): Map<string, Overload[]> {
    const own = new Map(functions.map((definition) => [keyOf(definition), definition]))
    const overloads = new Map<string, Overload[]>()
    for (const func of this.#environment.funcs) {
      if (isMisfit(func)) continue
      const overload = overloadOf(func)
      const definition = own.get(signatureOf(func))
      const { result = overload.result, phases, check = CHECKS[func.name] } = definition ?? {}
      const list = overloads.get(func.name) ?? []
      overloads.set(func.name, [...list, { ...overload, result, phases, check }])
    }
    return overloads
  }
}

/**
 * Errors are values in expressions. `||` and macros may absorb thousands of them, and recording their stacks
 * would take longer than the rest.
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

/** The signature of one of ours. */
function keyOf({ name, isMethod, parameters }: ExpressionFunction<never>): string {
  return `${isMethod ? '.' : ''}${name}(${parameters.join()})`
}

function messageOf(error: unknown): string {
  return error instanceof Error ? error.message : String(error)
}
