import type { Clock } from '../base/clock.ts'
import type { Logger } from '../base/logger.ts'
import type {
  ActionContext,
  ActionDefinition,
  ConfigPath,
  PolicyReach,
  RunningAction,
} from './action.ts'
import { ACTIONS, UNAVAILABLE_ACTIONS } from './actions/index.ts'
import type { CompiledExpression } from './compiled-expression.ts'
import { readConfig } from './config-problem.ts'
import {
  type ActionSource,
  parsePolicy,
  type RuleSource,
  readDocument,
  type Sourced,
} from './document.ts'
import type { Exchange } from './exchange.ts'
import type { ExpressionLanguage } from './expression.ts'
import type { Scope } from './expression-check.ts'
import { ExpressionProblem } from './expression-problem.ts'
import { canBe } from './expression-type.ts'
import { PHASES, type Phase } from './phase.ts'
import { policyLanguage } from './policy-language.ts'
import { PolicyScope } from './policy-scope.ts'
import { child, type ProblemList } from './problem.ts'
import { type CompiledAction, type CompiledRule, PhaseRules } from './run-phase.ts'
import { splitTemplate, Template } from './template.ts'

/** State of actions by what identifies them: their phase, type and configuration. */
export type ActionStates = ReadonlyMap<string, unknown>

export interface CompilerOptions {
  readonly clock: Clock
  readonly log: Logger
  readonly reach: PolicyReach
  readonly previous: ActionStates | undefined
}

/** Makes the rules of one document; what is wrong with it ends up in `problems`. */
export class Compiler {
  readonly #options: CompilerOptions
  readonly #problems: ProblemList
  readonly #language: ExpressionLanguage<Exchange>
  readonly #scope = new PolicyScope()
  readonly #states = new Map<string, unknown>()

  constructor(options: CompilerOptions, problems: ProblemList) {
    this.#options = options
    this.#problems = problems
    this.#language = policyLanguage(options.clock)
  }

  /** State of the actions that were compiled, for the policy that comes after. */
  get states(): ActionStates {
    return this.#states
  }

  compile(source: unknown): Readonly<Record<Phase, PhaseRules>> {
    const value = source === null ? {} : parsePolicy(source, this.#problems)
    const document = this.#problems.hasErrors ? undefined : readDocument(value, this.#problems)
    const [onTcpConnect, onHttpRequest, onHttpResponse] = PHASES.map((phase) => {
      this.#scope.enterPhase(phase)
      const rules = (document?.rules[phase] ?? []).map((rule) => this.#compileRule(rule, phase))
      return new PhaseRules(phase, rules, this.#options.log)
    }) as [PhaseRules, PhaseRules, PhaseRules]
    return {
      on_tcp_connect: onTcpConnect,
      on_http_request: onHttpRequest,
      on_http_response: onHttpResponse,
    }
  }

  #compileRule(rule: RuleSource, phase: Phase): CompiledRule {
    const expressions = rule.expressions.flatMap(
      (expression) => this.#compileCondition(expression, phase) ?? [],
    )
    const actions = rule.actions.flatMap((action) => this.#compileAction(action, phase) ?? [])
    this.#warnUnreachable(rule)
    return { name: rule.name, expressions, actions }
  }

  #compileCondition({ value, pointer }: Sourced<string>, phase: Phase) {
    const expression = this.#compileExpression(value, pointer, this.#scope.in(phase))
    if (expression && !canBe(expression.type, 'bool')) {
      const message = `An expression must be true or false, and this is a ${expression.type.name}.`
      this.#problems.add('expression', pointer, message)
    }
    return expression
  }

  #compileAction({ type, config, pointer }: ActionSource, phase: Phase) {
    const action = this.#findAction(type, pointer, phase)
    if (!action) return undefined
    const configPointer = child(pointer, 'config')
    const before = this.#problems.all.length
    const parsed = readConfig(action.config, config ?? {}, configPointer, this.#problems)
    let run: RunningAction | undefined
    if (this.#problems.all.length === before) {
      run = action.build(parsed, this.#context(action, parsed, configPointer, phase))
    }
    this.#scope.addAction(action)
    return run && ({ type, run, alwaysEnds: action.alwaysEnds(parsed) } satisfies CompiledAction)
  }

  #findAction(type: string, pointer: string, phase: Phase): ActionDefinition | undefined {
    const at = child(pointer, 'type')
    const action = ACTIONS.get(type)
    if (action?.phases.includes(phase)) return action
    if (action) {
      const message = `${type} cannot stand in ${phase}, only in ${action.phases.join(', ')}.`
      this.#problems.add('actionNotInPhase', at, message)
      return undefined
    }
    const sentence = UNAVAILABLE_ACTIONS.get(type)
    if (sentence !== undefined) {
      const message = `${type} is not available here: ${sentence}.`
      this.#problems.add('notAvailable', at, message, { isForeign: true })
    } else {
      this.#problems.add('unknownAction', at, `There is no action ${type}.`, { isForeign: true })
    }
    return undefined
  }

  #context(
    action: ActionDefinition,
    config: unknown,
    pointer: string,
    phase: Phase,
  ): ActionContext {
    const at = (path: ConfigPath) => path.reduce<string>(child, pointer)
    const { clock, log, reach } = this.#options
    return {
      phase,
      clock,
      log,
      reach,
      template: (text, path) => this.#compileTemplate(text, at(path), phase),
      expression: (source, path, names) =>
        this.#compileExpression(source, at(path), this.#scope.in(phase, names)),
      problem: (kind, path, message, options) => {
        this.#problems.add(kind, at(path), message, options)
      },
      carry: (create) => this.#carry(`${phase} ${action.type} ${JSON.stringify(config)}`, create),
      declare: (name) => this.#scope.addVariable(name),
    }
  }

  /** The n-th of several equal actions takes over the state of the n-th before. */
  #carry<T>(identity: string, create: () => T): T {
    let ordinal = 0
    while (this.#states.has(`${identity} ${ordinal}`)) ordinal += 1
    const key = `${identity} ${ordinal}`
    const state = (this.#options.previous?.get(key) as T | undefined) ?? create()
    this.#states.set(key, state)
    return state
  }

  #compileTemplate(text: string, pointer: string, phase: Phase): Template {
    const pieces = splitTemplate(text)
    if (!pieces) {
      this.#problems.add(
        'interpolation',
        pointer,
        'An interpolation is not closed: it ends with a brace.',
      )
      return new Template([])
    }
    const scope = this.#scope.in(phase)
    return new Template(
      pieces.flatMap((piece) =>
        piece.kind === 'text'
          ? piece.text
          : (this.#compileExpression(piece.source, pointer, scope, 'interpolation') ?? []),
      ),
    )
  }

  #compileExpression(
    source: string,
    pointer: string,
    scope: Scope,
    kind: 'expression' | 'interpolation' = 'expression',
  ): CompiledExpression | undefined {
    try {
      return this.#language.compile(source, scope)
    } catch (error) {
      if (!(error instanceof ExpressionProblem)) throw error
      const { message, offset, isForeign } = error
      const place = offset === undefined ? '' : ` (at character ${offset + 1})`
      const sentence = `The expression \`${shorten(source)}\` cannot be used: ${message}${place}.`
      this.#problems.add(kind, pointer, sentence, { isForeign })
      return undefined
    }
  }

  #warnUnreachable({ actions }: RuleSource): void {
    const end = actions.findIndex(({ type }) => ACTIONS.get(type)?.isTerminating)
    const next = end === -1 ? undefined : actions[end + 1]
    if (!next) return
    const message = `This action never runs: ${actions[end]?.type} before it ends the phase.`
    this.#problems.add('unreachable', next.pointer, message, { severity: 'warning' })
  }
}

function shorten(source: string): string {
  return source.length > 120 ? `${source.slice(0, 120)}…` : source
}
