import type { Logger } from '../base/logger.ts'
import type { WarningPace } from '../base/warning-pace.ts'
import type { RunningAction } from './actions/action.ts'
import { CLOSE, CONTINUE, type MaybePromise, type Outcome, refuse } from './exchange/outcome.ts'
import type { PolicyExchange } from './exchange/policy-exchange.ts'
import type { CompiledExpression } from './expression/compiled-expression.ts'
import { EvaluationError } from './expression/expression-problem.ts'
import type { SchedulerMember } from './limit/fair-scheduler.ts'
import type { Phase } from './phase.ts'

/** Position where a phase continues. An action above 0 has a matching rule. */
interface Place {
  readonly rule: number
  readonly expression: number
  readonly action: number
}

const START: Place = { rule: 0, expression: 0, action: 0 }
/** Steps to reach an action, in addition to its computations. */
const ACTION_STEPS = 20
const CROWD = 'too many requests are waiting for this policy'

export interface CompiledRule {
  readonly name: string | undefined
  /** All must be true; a rule without any always matches. */
  readonly expressions: readonly CompiledExpression<PolicyExchange>[]
  readonly actions: readonly CompiledAction[]
  /** An expression or an action of it looks at the path of the request. */
  readonly readsPath: boolean
  /** Requests that match, whatever the expressions say. */
  readonly isFor?: (exchange: PolicyExchange) => boolean
}

export interface CompiledAction {
  readonly type: string
  readonly run: RunningAction
  /** The phase always continues. */
  readonly neverEnds: boolean
  /** It lets nothing go on. */
  readonly alwaysEnds: boolean
}

/**
 * Cost of rules in the best case. A rule without a match costs its first expression, and a matching rule may
 * end the phase.
 */
export function leastStepsOf(rules: readonly CompiledRule[]): number {
  return rules.reduceRight((following, { expressions, actions }) => {
    const [first] = expressions
    const all = expressions.reduce((sum, { leastSteps }) => sum + leastSteps, 0)
    const goesOn = actions.every(({ neverEnds }) => neverEnds)
    const matched = all + ACTION_STEPS * actions.length + (goesOn ? following : 0)
    return first ? Math.min(first.leastSteps + following, matched) : matched
  }, 0)
}

interface PhaseRulesOptions {
  readonly log: Logger
  /** Of the policy, for the failures of all its phases. */
  readonly warnings: WarningPace
  /** Of the policy, which has turns for all its phases together. */
  readonly lane: SchedulerMember
}

/** The rules of one phase, in order. */
export class PhaseRules {
  readonly #phase: Phase
  readonly #rules: readonly CompiledRule[]
  readonly #log: Logger
  readonly #warnings: WarningPace
  readonly #lane: SchedulerMember

  constructor(
    phase: Phase,
    rules: readonly CompiledRule[],
    { log, warnings, lane }: PhaseRulesOptions,
  ) {
    this.#phase = phase
    this.#rules = rules
    this.#log = log
    this.#warnings = warnings
    this.#lane = lane
  }

  get isEmpty(): boolean {
    return this.#rules.length === 0
  }

  /** Whether a rule looks at the path of the request. */
  get readsPath(): boolean {
    return this.#rules.some((rule) => rule.readsPath)
  }

  /** Whether a rule has an action of this type. */
  has(type: string): boolean {
    return this.#rules.some(({ actions }) => actions.some((action) => action.type === type))
  }

  /** The URLs that actions hand exchanges on to, as far as they are the same for all. */
  get forwardUrls(): string[] {
    return this.#rules.flatMap(({ actions }) => actions.flatMap(({ run }) => run.forwardsTo ?? []))
  }

  /** True when a rule that always matches lets nothing go on. */
  get alwaysEnds(): boolean {
    return this.#rules.some(
      ({ expressions, actions }) =>
        expressions.every(({ isAlwaysTrue }) => isAlwaysTrue) &&
        actions.some(({ alwaysEnds }) => alwaysEnds),
    )
  }

  /**
   * Runs until something ends the phase. Waits where an action does, and for turns where the policy
   * is costly. Never throws.
   */
  run(exchange: PolicyExchange): MaybePromise<Outcome> {
    exchange.forgetVars()
    return this.#lane.hasToWait ? this.#runInTurn(exchange, START) : this.#stretch(exchange, START)
  }

  /** The same, after the requests that already wait for a turn. */
  async #runInTurn(exchange: PolicyExchange, place: Place): Promise<Outcome> {
    if (this.#lane.isFull) {
      return this.#fail(new EvaluationError(CROWD), place.rule, undefined, exchange)
    }
    return this.#lane.inTurn(() => this.#stretch(exchange, place))
  }

  /** Runs to the end, or until other work gets a turn. Records the cost. */
  #stretch(exchange: PolicyExchange, place: Place): MaybePromise<Outcome> {
    const { account } = exchange
    const before = account.spent
    const outcome = this.#runFrom(exchange, place)
    this.#lane.ran(account.spent - before)
    return outcome
  }

  #runFrom(exchange: PolicyExchange, place: Place): MaybePromise<Outcome> {
    const { account } = exchange
    const before = account.spent
    let { expression, action: first } = place
    for (let at = place.rule; at < this.#rules.length; at += 1) {
      const rule = this.#rules[at] as CompiledRule
      let action: CompiledAction | undefined
      try {
        let matches = true
        if (first === 0 && rule.isFor?.(exchange)) expression = rule.expressions.length
        for (; first === 0 && matches && expression <= rule.expressions.length; expression += 1) {
          if (this.#lane.isLong(account.spent - before)) {
            return this.#runInTurn(exchange, { rule: at, expression, action: 0 })
          }
          matches = this.#isMet(rule, at, expression, exchange)
        }
        for (let index = first; matches && index < rule.actions.length; index += 1) {
          if (index > 0 && this.#lane.isLong(account.spent - before)) {
            return this.#runInTurn(exchange, { rule: at, expression: 0, action: index })
          }
          action = rule.actions[index] as CompiledAction
          const outcome = this.#act(action, exchange)
          if (outcome instanceof Promise) return this.#resume(outcome, exchange, at, index)
          if (outcome.kind !== 'continue') return outcome
        }
      } catch (error) {
        return this.#fail(error, at, action, exchange)
      }
      expression = 0
      first = 0
    }
    return CONTINUE
  }

  /** Whether an expression of a rule is true; behind the last one the rule matches. */
  #isMet(rule: CompiledRule, index: number, at: number, exchange: PolicyExchange): boolean {
    const expression = rule.expressions[at]
    exchange.account.beginStretch()
    const isMet = expression?.isTrue(exchange) ?? true
    if (isMet && expression) return true
    const { name } = rule
    exchange.trace?.onRule({ phase: this.#phase, index, name, unmet: expression?.source })
    return isMet
  }

  #act({ type, run }: CompiledAction, exchange: PolicyExchange): MaybePromise<Outcome> {
    const { trace, account } = exchange
    account.beginStretch()
    account.spend(ACTION_STEPS)
    const outcome = run(exchange)
    if (!trace) return outcome
    if (!(outcome instanceof Promise)) {
      trace.onAction({ type, outcome })
      return outcome
    }
    return outcome.then((settled) => {
      trace.onAction({ type, outcome: settled })
      return settled
    })
  }

  async #resume(
    pending: Promise<Outcome>,
    exchange: PolicyExchange,
    ruleIndex: number,
    actionIndex: number,
  ): Promise<Outcome> {
    const rule = this.#rules[ruleIndex] as CompiledRule
    try {
      const outcome = await pending
      if (outcome.kind !== 'continue') return outcome
    } catch (error) {
      return this.#fail(error, ruleIndex, rule.actions[actionIndex], exchange)
    }
    const isLast = actionIndex + 1 === rule.actions.length
    const next = isLast
      ? { rule: ruleIndex + 1, expression: 0, action: 0 }
      : { rule: ruleIndex, expression: 0, action: actionIndex + 1 }
    return this.#lane.hasToWait ? this.#runInTurn(exchange, next) : this.#stretch(exchange, next)
  }

  /** Fails closed: the rule may be the one that protects the device. */
  #fail(
    error: unknown,
    index: number,
    action: CompiledAction | undefined,
    exchange: PolicyExchange,
  ): Outcome {
    const phase = this.#phase
    const name = this.#rules[index]?.name
    const { id: endpoint, host } = exchange.endpoint
    const context = {
      endpoint,
      phase,
      index,
      rule: name,
      action: action?.type,
    }
    const { readSecrets } = exchange
    const message = readSecrets.mask(error instanceof Error ? error.message : String(error))
    if (error instanceof EvaluationError) {
      // The owner must see that visitors get errors. Visitors decide how often that happens.
      const level = this.#warnings.next()
      this.#log[level]({ ...context, host, problem: message }, 'policy failed for a request')
    } else {
      this.#log.error({ ...context, err: readSecrets.maskError(error) }, 'policy action failed')
    }
    const isOverspent = error instanceof EvaluationError && error.isOverspent
    exchange.trace?.onFailure({ phase, index, name, action: action?.type, message })
    if (this.#phase === 'on_tcp_connect') return CLOSE
    const sentence = isOverspent ? 'takes too long for one request' : 'failed'
    return refuse(500, 'ERR_NGROK_2254', `The traffic policy of this endpoint ${sentence}.`)
  }
}
