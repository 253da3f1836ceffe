import type { Logger } from '../base/logger.ts'
import type { RunningAction } from './actions/action.ts'
import { CLOSE, CONTINUE, type MaybePromise, type Outcome, refuse } from './exchange/outcome.ts'
import type { PolicyExchange } from './exchange/policy-exchange.ts'
import type { CompiledExpression } from './expression/compiled-expression.ts'
import { EvaluationError } from './expression/evaluation.ts'
import type { Phase } from './phase.ts'

export interface CompiledRule {
  readonly name: string | undefined
  /** All must be true; a rule without any always matches. */
  readonly expressions: readonly CompiledExpression<PolicyExchange>[]
  readonly actions: readonly CompiledAction[]
}

export interface CompiledAction {
  readonly type: string
  readonly run: RunningAction
  /** It lets nothing go on. */
  readonly alwaysEnds: boolean
}

/** The rules of one phase, in order. */
export class PhaseRules {
  readonly #phase: Phase
  readonly #rules: readonly CompiledRule[]
  readonly #log: Logger

  constructor(phase: Phase, rules: readonly CompiledRule[], log: Logger) {
    this.#phase = phase
    this.#rules = rules
    this.#log = log
  }

  get isEmpty(): boolean {
    return this.#rules.length === 0
  }

  /** True when a rule that always matches lets nothing go on. */
  get alwaysEnds(): boolean {
    return this.#rules.some(
      ({ expressions, actions }) =>
        expressions.every(({ isAlwaysTrue }) => isAlwaysTrue) &&
        actions.some(({ alwaysEnds }) => alwaysEnds),
    )
  }

  /** Runs until something ends the phase. Waits only where an action does. Never throws. */
  run(exchange: PolicyExchange): MaybePromise<Outcome> {
    exchange.vars.clear()
    return this.#runFrom(exchange, 0, 0)
  }

  /** Goes on with an action of a rule that has matched, or with the rule when that is 0. */
  #runFrom(
    exchange: PolicyExchange,
    ruleIndex: number,
    actionIndex: number,
  ): MaybePromise<Outcome> {
    let first = actionIndex
    for (let at = ruleIndex; at < this.#rules.length; at += 1) {
      const rule = this.#rules[at] as CompiledRule
      let action: CompiledAction | undefined
      try {
        const matches = first > 0 || this.#matches(rule, at, exchange)
        for (let index = first; matches && index < rule.actions.length; index += 1) {
          action = rule.actions[index] as CompiledAction
          const outcome = this.#act(action, exchange)
          if (outcome instanceof Promise) return this.#resume(outcome, exchange, at, index)
          if (outcome.kind !== 'continue') return outcome
        }
      } catch (error) {
        return this.#fail(error, at, action, exchange)
      }
      first = 0
    }
    return CONTINUE
  }

  #matches(rule: CompiledRule, index: number, exchange: PolicyExchange): boolean {
    const unmet = rule.expressions.find((expression) => !expression.isTrue(exchange))
    const { name } = rule
    exchange.trace?.onRule({ phase: this.#phase, index, name, unmet: unmet?.source })
    return unmet === undefined
  }

  #act({ type, run }: CompiledAction, exchange: PolicyExchange): MaybePromise<Outcome> {
    const outcome = run(exchange)
    const { trace } = exchange
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
    return this.#runFrom(exchange, isLast ? ruleIndex + 1 : ruleIndex, isLast ? 0 : actionIndex + 1)
  }

  /** Fails closed: a rule that cannot be judged may be the one that protects the device. */
  #fail(
    error: unknown,
    index: number,
    action: CompiledAction | undefined,
    exchange: PolicyExchange,
  ): Outcome {
    const phase = this.#phase
    const name = this.#rules[index]?.name
    const context = {
      endpoint: exchange.endpoint.id,
      phase,
      index,
      rule: name,
      action: action?.type,
    }
    if (error instanceof EvaluationError) {
      this.#log.info({ ...context, problem: error.message }, 'policy failed for a request')
    } else {
      this.#log.error({ ...context, err: error }, 'policy action broke')
    }
    const message = error instanceof Error ? error.message : String(error)
    exchange.trace?.onFailure({ phase, index, name, action: action?.type, message })
    if (this.#phase === 'on_tcp_connect') return CLOSE
    return refuse(500, 'ERR_NGROK_2254', 'The traffic policy of this endpoint failed.')
  }
}
