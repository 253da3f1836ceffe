import type { Clock } from '../base/clock.ts'
import { ACTIONS } from './actions/all-actions.ts'
import type { PolicyExchange } from './exchange/policy-exchange.ts'
import { Account } from './expression/cost/account.ts'
import { ExpressionLanguage } from './expression/expression.ts'
import { Pattern } from './expression/pattern.ts'
import type { ValueInput } from './expression/value.ts'
import type { Variable } from './expression/variable.ts'
import { ATTEMPTS } from './outbound/http-asker.ts'
import { FUNCTIONS } from './vocabulary/all-functions.ts'
import { FUNCTION_PRICES } from './vocabulary/function-prices.ts'
import { POLICY_MEANING } from './vocabulary/policy-meaning.ts'
import { VARIABLES } from './vocabulary/variables.ts'

/** One for each clock: it costs 2 ms and 400 KB and is the same for every policy. */
const LANGUAGES = new WeakMap<Clock, ExpressionLanguage<PolicyExchange>>()

/** The language of policies: variables, results of actions, functions. */
export function policyLanguage(clock: Clock): ExpressionLanguage<PolicyExchange> {
  const known = LANGUAGES.get(clock)
  if (known) return known
  const variables = new Map<string, Variable<PolicyExchange>>(VARIABLES)
  for (const { namespace } of ACTIONS.values()) {
    variables.set(`actions.ngrok.${namespace}`, {
      type: 'map(dyn)',
      read: ({ results }) => results.get(namespace) as ValueInput | undefined,
    })
  }
  // Known to retry conditions alone: see http-request.
  for (const name of ['attempts', 'last_attempt']) {
    variables.set(name, {
      type: 'dyn',
      read: ({ results }) => results.get(ATTEMPTS)?.[name] as ValueInput | undefined,
    })
  }
  const language = new ExpressionLanguage({
    clock,
    functions: FUNCTIONS,
    variables,
    prices: FUNCTION_PRICES,
    accountOf: ({ account }) => account,
    meaning: POLICY_MEANING,
  })
  LANGUAGES.set(clock, language)
  return language
}

/**
 * Does what the first policy, or the first request, would have to wait for some 30 ms: the language, and
 * the tables of Unicode that patterns look into.
 */
export function preparePolicies(clock: Clock): void {
  policyLanguage(clock)
  for (const source of ['(?i)[^a-z]', '\\PL', '(?i)\\pL{2,9}']) {
    new Pattern(source).test('a\u00e9\u0100', new Account())
  }
}
