import type { Clock } from '../base/clock.ts'
import type { Logger } from '../base/logger.ts'
import { WarningPace } from '../base/warning-pace.ts'
import type { ActionContext, ActionDefinition, ConfigPath } from './actions/action.ts'
import { ACTIONS, UNAVAILABLE_ACTIONS } from './actions/all-actions.ts'
import { meantType, missingType } from './actions/mistaken-types.ts'
import {
  type ActionSource,
  type PolicyDocument,
  type RuleSource,
  readDocument,
  type Sourced,
} from './document/document.ts'
import type { KnownDocuments } from './document/known-documents.ts'
import { type Parts, type PolicyReading, readPolicyText } from './document/policy-text.ts'
import { child, isWithin, ProblemList } from './document/problem.ts'
import { type ReadConfig, readConfig } from './document/read-config.ts'
import type { PolicyExchange } from './exchange/policy-exchange.ts'
import type { SecretName } from './exchange/policy-secrets.ts'
import { Account, MAX_STEPS } from './expression/account.ts'
import { truthForm } from './expression/call-advice.ts'
import {
  type CompiledExpression,
  splitTemplate,
  Template,
} from './expression/compiled-expression.ts'
import type { ExpressionLanguage } from './expression/expression.ts'
import type { Scope } from './expression/expression-check.ts'
import { ExpressionProblem } from './expression/expression-problem.ts'
import { aType, canBe } from './expression/expression-type.ts'
import { type FairScheduler, SchedulerMember } from './limit/fair-scheduler.ts'
import type { LimiterTables } from './limit/limiter-tables.ts'
import type { PolicyReach } from './outbound/outbound-allow.ts'
import { PHASES, type Phase } from './phase.ts'
import { PolicyScope, policyLanguage } from './policy-language.ts'
import type { BodyRewriter } from './rewriting/body-rewriter.ts'
import { type CompiledAction, type CompiledRule, leastStepsOf, PhaseRules } from './run-phase.ts'
import { conflictOfRule, constantParts } from './vocabulary/constant-conditions.ts'
import { readsPath } from './vocabulary/requests.ts'
import { secretsIn } from './vocabulary/secrets.ts'

/** Interpolations of one action. */
const MAX_INTERPOLATIONS = 200
/** Cost of building an action, in characters of expressions. */
const ACTION_WORK = 50
/** Pointer for problems of options outside the document. */
const AROUND = '/options'

/** State of actions by their identity: phase, type and configuration. */
export type ActionStates = ReadonlyMap<string, unknown>

export interface CompilerOptions {
  readonly clock: Clock
  readonly log: Logger
  readonly reach: PolicyReach
  readonly limits: LimiterTables
  readonly previous: ActionStates | undefined
  /** Scheduler for costly policies. */
  readonly lane: FairScheduler
  readonly rewriter: BodyRewriter
  readonly documents: KnownDocuments
  /** See `PolicyOptions`. */
  readonly reading: PolicyReading | undefined
  /** Whether requests will follow. Then slow preparations run before the first request. */
  readonly isRun: boolean
}

/** An action with the place of its source and its schema. */
interface ActionPlace {
  readonly action: ActionDefinition
  readonly config: ReadConfig
  readonly pointer: string
  readonly phase: Phase
}

/** The rules of a document, ready to run. */
export interface CompiledRules {
  readonly phases: Readonly<Record<Phase, PhaseRules>>
  /** See `PolicyDocument`. */
  readonly allowsAmbiguousPaths: boolean
}

/** Compiles the rules of one document. Problems are added to `problems`. */
export class Compiler {
  readonly #options: CompilerOptions
  readonly #problems: ProblemList
  readonly #language: ExpressionLanguage<PolicyExchange>
  readonly #scope: PolicyScope
  /** Scheduler member for work on whole bodies. */
  readonly #bodies: SchedulerMember
  /** Whether the rule that is being compiled looks at the path of requests. */
  #readsPath = false
  readonly #states = new Map<string, unknown>()
  /** Used secrets, by vault and name. */
  readonly #secrets = new Map<string, SecretName>()
  /** Number of equal actions so far, by their identity. */
  readonly #equals = new Map<string, number>()
  /** Budget for everything that can be computed before a request. */
  readonly #constants = new Account(
    MAX_STEPS,
    'the constants of the policy take too long to evaluate',
  )

  constructor(options: CompilerOptions, problems: ProblemList) {
    this.#options = options
    this.#problems = problems
    this.#scope = new PolicyScope(options.reach.hasTable)
    this.#language = policyLanguage(options.clock)
    this.#bodies = new SchedulerMember(options.lane, 'long')
  }

  /** State of the actions that were compiled, for the policy that comes after. */
  get states(): ActionStates {
    return this.#states
  }

  /** The secrets that the rules use. */
  get secrets(): readonly SecretName[] {
    return [...this.#secrets.values()]
  }

  /**
   * Compiles JSON or YAML text, or a document that was parsed already; null has no rules. The rules
   * of `around` are met first on the way in and last on the way out.
   */
  *compile(source: unknown, around: object = {}): Parts<CompiledRules> {
    const document = yield* this.#document(source)
    const { isEnabled, rules: inner } = document
    const { rules: outer } = readDocument(around, this.#problems, AROUND)
    const { clock, log, lane } = this.#options
    const shared = { log, warnings: new WarningPace(clock), lane: new SchedulerMember(lane) }
    const phases: Partial<Record<Phase, PhaseRules>> = {}
    for (const phase of PHASES) {
      this.#scope.enterPhase(phase)
      const first = phase === 'on_http_response' ? [] : yield* this.#compileRules(outer, phase)
      const own = yield* this.#compileRules(inner, phase)
      const last = phase === 'on_http_response' ? yield* this.#compileRules(outer, phase) : []
      const rules = [...first, ...(isEnabled ? own : []), ...last]
      this.#refuseCostly([...first, ...own, ...last], phase)
      phases[phase] = new PhaseRules(phase, rules, shared)
    }
    const { allowsAmbiguousPaths } = document
    return { phases: phases as Record<Phase, PhaseRules>, allowsAmbiguousPaths }
  }

  *#compileRules(sources: PolicyDocument['rules'], phase: Phase): Parts<CompiledRule[]> {
    const rules: CompiledRule[] = []
    for (const rule of sources[phase]) rules.push(yield* this.#compileRule(rule, phase))
    return rules
  }

  *#document(source: unknown): Parts<PolicyDocument> {
    const { documents } = this.#options
    const text = typeof source === 'string' ? source : undefined
    const known = text === undefined ? undefined : documents.find(text)
    const value = known
      ? known.value
      : text === undefined
        ? (source ?? {})
        : yield* this.#read(text)
    this.#problems.about(value)
    if (known) return known.document
    const document = readDocument(value, this.#problems)
    if (text !== undefined && this.#problems.isEmpty) documents.keep(text, { value, document })
    return document
  }

  /** Reads the text as far as possible. An unreadable text gives no rules, and a problem. */
  *#read(text: string): Parts<unknown> {
    const { reading } = this.#options
    if (reading) this.#problems.addFound(reading.problems)
    const read = reading ? reading.read : yield* readPolicyText(text, this.#problems)
    return read ? read.value : {}
  }

  *#compileRule(rule: RuleSource, phase: Phase): Parts<CompiledRule> {
    this.#readsPath = false
    const expressions: CompiledExpression<PolicyExchange>[] = []
    const pointers: string[] = []
    for (const source of rule.expressions) {
      const expression = this.#compileCondition(source, phase)
      if (expression) {
        expressions.push(expression)
        pointers.push(source.pointer)
      }
      yield source.value.length
    }
    const conflict = conflictOfRule(expressions)
    if (conflict) {
      const pointer = pointers[conflict.index] ?? rule.pointer
      this.#problems.add('expression', pointer, conflict.message, { isOnlyForNew: true })
    }
    const actions: CompiledAction[] = []
    for (const source of rule.actions) {
      const isPrepared = yield* this.#prepareAction(source)
      const action = isPrepared ? this.#compileAction(source, phase) : undefined
      if (action) actions.push(action)
      yield ACTION_WORK
    }
    this.#warnUnreachable(rule)
    const claims = actions.flatMap(({ run }) => run.isFor ?? [])
    const isFor = (exchange: PolicyExchange) => claims.some((isFor) => isFor(exchange))
    const readsPath = this.#readsPath
    return { name: rule.name, expressions, actions, readsPath, ...(claims.length > 0 && { isFor }) }
  }

  /**
   * Parses the expressions of an action in parts, because that takes longest. The action itself is built at
   * once. False if it has too many expressions.
   */
  *#prepareAction({ type, config, pointer }: ActionSource): Parts<boolean> {
    const pieces = Array.from(textsIn(config)).flatMap((text) => splitTemplate(text).pieces)
    const expressions = pieces.filter((piece) => piece.kind === 'expression')
    if (expressions.length > MAX_INTERPOLATIONS) {
      const message = `The action has ${expressions.length} interpolations; at most ${MAX_INTERPOLATIONS} are allowed.`
      this.#problems.add('tooManyItems', pointer, message)
      const action = ACTIONS.get(type)
      if (action) this.#scope.addAction(action)
      return false
    }
    for (const { source } of expressions) {
      this.#language.prepare(source)
      yield source.length
    }
    return true
  }

  /** Refuses a policy that is too expensive even if every optional rule does not match. */
  #refuseCostly(rules: readonly CompiledRule[], phase: Phase): void {
    const steps = leastStepsOf(rules)
    if (steps <= MAX_STEPS) return
    const message = `The rules take at least ${Math.ceil(steps)} steps; a request is limited to ${MAX_STEPS}.`
    this.#problems.add('tooManyItems', `/${phase}`, message)
  }

  #compileCondition({ value, pointer }: Sourced<string>, phase: Phase) {
    const isCondition = true
    const expression = this.#compileExpression(value, pointer, this.#scope.in(phase), {
      isCondition,
    })
    if (expression && !canBe(expression.type, 'bool')) {
      const form = truthForm(this.#language.written(value).tree, expression.type)
      const hint = form === undefined ? '' : ` Write ${form}.`
      const message = `An expression must be true or false, not ${aType(expression.type)}.${hint}`
      this.#problems.add('expression', pointer, message)
    }
    return expression
  }

  /** Builds an action even when it is of no use, so that all of it is checked. */
  #compileAction(source: ActionSource, rulePhase: Phase): CompiledAction | undefined {
    const { type, pointer } = source
    const action = ACTIONS.get(type)
    if (!action) {
      this.#refuseAction(type, child(pointer, 'type'))
      return undefined
    }
    const config = this.#configOf(action, source)
    const phase = this.#phaseFor(action, source, rulePhase)
    const run = action.build(config.value, this.#context({ action, config, pointer, phase }))
    this.#scope.addAction(action)
    const { neverEnds } = action
    return { type, run, neverEnds, alwaysEnds: action.alwaysEnds(config.value) }
  }

  #configOf({ config: schema, example }: ActionDefinition, source: ActionSource): ReadConfig {
    const { documents } = this.#options
    const known = documents.configOf(source)
    if (known) return known
    const problems = new ProblemList()
    const pointer = child(source.pointer, 'config')
    const written = source.config ?? {}
    const config = readConfig({ schema, example, config: written, pointer, ownersOf }, problems)
    if (problems.isEmpty) documents.keepConfig(source, config)
    this.#problems.addAll(problems)
    return config
  }

  /** An action that stands where it cannot is judged as if it stood where it can. */
  #phaseFor({ type, phases }: ActionDefinition, { pointer }: ActionSource, phase: Phase): Phase {
    if (phases.includes(phase)) return phase
    const message = `${type} is not allowed in ${phase}, only in ${phases.join(', ')}.`
    this.#problems.add('actionNotInPhase', child(pointer, 'type'), message)
    return phases.at(-1) ?? phase
  }

  #refuseAction(type: string, pointer: string): void {
    const sentence = UNAVAILABLE_ACTIONS.get(type)
    if (sentence !== undefined) {
      const message = `${type} is not available at a gateway: ${sentence}.`
      this.#problems.add('notAvailable', pointer, message, { isForeign: true })
      this.#scope.addUnavailable(type)
      return
    }
    const reason = missingType(type)
    const meant = reason ? undefined : ACTIONS.get(meantType(type, ACTIONS.keys()) ?? '')
    const hint = meant ? `: did you mean ${meant.type}?` : reason ? `. ${reason}` : '.'
    const message = `Unknown action ${type}${hint}`
    this.#problems.add('unknownAction', pointer, message, { isForeign: true })
    // Later uses of the intended action's results are not reported as a second problem.
    if (meant) this.#scope.addAction(meant)
  }

  #context({ action, config, pointer, phase }: ActionPlace): ActionContext {
    const at = (path: ConfigPath) => path.reduce<string>(child, child(pointer, 'config'))
    const isMended = (path: ConfigPath) => isWithin(at(path), config.mended)
    const { clock, log, reach, limits, rewriter } = this.#options
    return {
      phase,
      clock,
      log,
      reach,
      limits,
      template: (text, path) => this.#compileTemplate(text, at(path), phase),
      expression: (source, path, names) =>
        this.#compileExpression(source, at(path), this.#scope.in(phase, names)),
      problem: (kind, path, message, options) => {
        if (!isMended(path)) this.#problems.add(kind, at(path), message, options)
      },
      isMended,
      readPath: () => {
        this.#readsPath = true
      },
      carry: (create) => {
        return this.#carry(`${phase} ${action.type} ${JSON.stringify(config.value)}`, create)
      },
      declare: (name) => this.#scope.addVariable(name),
      inTurn: (work) => this.#bodies.inTurn(work),
      rewrite: (body, replacements) => rewriter.rewrite(this.#bodies, body, replacements),
    }
  }

  /** The n-th of several equal actions takes over the state of the n-th before. */
  #carry<T>(identity: string, create: () => T): T {
    const ordinal = this.#equals.get(identity) ?? 0
    this.#equals.set(identity, ordinal + 1)
    const key = `${identity} ${ordinal}`
    const state = (this.#options.previous?.get(key) as T | undefined) ?? create()
    this.#states.set(key, state)
    return state
  }

  #compileTemplate(text: string, pointer: string, phase: Phase): Template<PolicyExchange> {
    const { pieces, unclosed } = splitTemplate(text)
    const scope = this.#scope.in(phase)
    const compiled = pieces.map((piece) =>
      piece.kind === 'text'
        ? piece.text
        : this.#compileExpression(piece.source, pointer, scope, { start: piece.offset }),
    )
    if (unclosed === undefined) return new Template<PolicyExchange>(compiled)
    const message = 'An interpolation is not closed. Add the closing brace.'
    this.#problems.add('interpolation', pointer, message, { offset: unclosed })
    return new Template<PolicyExchange>([...compiled, undefined])
  }

  /**
   * `start`: where the expression begins in the text around it; undefined when it is all there is.
   * `isCondition`: the rule applies when it is true.
   */
  #compileExpression(
    source: string,
    pointer: string,
    scope: Scope,
    { start, isCondition = false }: { start?: number; isCondition?: boolean } = {},
  ): CompiledExpression<PolicyExchange> | undefined {
    try {
      const expression = this.#language.compile(source, scope, this.#constants)
      this.#reviewExpression(expression, pointer, { start, isCondition })
      this.#readsPath ||= readsPath(expression.form)
      this.#noteSecrets(expression, pointer)
      if (this.#options.isRun) expression.prepare()
      return expression
    } catch (error) {
      if (!(error instanceof ExpressionProblem)) throw error
      const kind = start === undefined ? 'expression' : 'interpolation'
      for (const { message, offset, isForeign } of [error, ...error.further]) {
        const place = offset === undefined ? '' : ` (at character ${offset + 1})`
        const sentence = `The expression \`${shorten(source)}\` is not valid: ${message}${place}.`
        const at = start === undefined ? offset : start + (offset ?? 0)
        this.#problems.add(kind, pointer, sentence, { isForeign, offset: at })
      }
      return undefined
    }
  }

  #noteSecrets({ form }: CompiledExpression<PolicyExchange>, pointer: string): void {
    for (const secret of secretsIn(form)) {
      const { vault, name } = secret
      this.#secrets.set(JSON.stringify([vault, name]), secret)
      const problem = this.#options.reach.secrets?.problemOf(secret)
      if (problem === undefined) continue
      const message = `secrets.get('${vault}', '${name}') cannot be used: ${problem.message}.`
      const { isOnlyForNew } = problem
      this.#problems.add('unknownSecret', pointer, message, { isOnlyForNew })
    }
  }

  /** Refuses parts that are the same for every request. A policy that was stored before keeps running. */
  #reviewExpression(
    { source, form }: CompiledExpression<PolicyExchange>,
    pointer: string,
    { start, isCondition }: { readonly start: number | undefined; readonly isCondition: boolean },
  ): void {
    const written = this.#language.written(source)
    for (const part of constantParts({ form, written: written.tree }, { isCondition })) {
      const at = (written.offsetOf(part.node) ?? 0) + (start ?? 0)
      this.#problems.add(
        start === undefined ? 'expression' : 'interpolation',
        pointer,
        part.message,
        {
          severity: part.isRefused ? 'error' : 'warning',
          isForeign: part.isForeign,
          isOnlyForNew: true,
          offset: at,
        },
      )
    }
  }

  #warnUnreachable({ actions }: RuleSource): void {
    const end = actions.findIndex(({ type }) => ACTIONS.get(type)?.isTerminating)
    const next = end === -1 ? undefined : actions[end + 1]
    if (!next) return
    const message = `This action never runs, because ${actions[end]?.type} before it ends the phase.`
    this.#problems.add('unreachable', next.pointer, message, { severity: 'warning' })
  }
}

/** The actions that have a field. */
const ownersOf = (field: string): string[] =>
  Array.from(ACTIONS.values()).flatMap(({ type, example }) =>
    Object.hasOwn(Object(example), field) ? [type] : [],
  )

/** All texts of a configuration, however deep. */
function* textsIn(value: unknown): Iterable<string> {
  if (typeof value === 'string') yield value
  else if (typeof value === 'object' && value !== null) {
    for (const item of Object.values(value)) yield* textsIn(item)
  }
}

function shorten(source: string): string {
  return source.length > 120 ? `${source.slice(0, 120)}…` : source
}
