import type { Clock } from '../base/clock.ts'
import { ACTIONS } from './actions/index.ts'
import type { Exchange } from './exchange/exchange.ts'
import { ExpressionLanguage } from './expression.ts'
import { FUNCTIONS } from './functions/all-functions.ts'
import { ATTEMPTS } from './outbound/http-asker.ts'
import type { ValueInput } from './value.ts'
import { VARIABLES, type Variable } from './variables.ts'

/** One for each clock: it costs 2 ms and 400 KB and is the same for every policy. */
const LANGUAGES = new WeakMap<Clock, ExpressionLanguage<Exchange>>()

/** The language of policies: variables, results of actions, functions. */
export function policyLanguage(clock: Clock): ExpressionLanguage<Exchange> {
  const known = LANGUAGES.get(clock)
  if (known) return known
  const variables = new Map<string, Variable>(VARIABLES)
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
  const language = new ExpressionLanguage({ clock, functions: FUNCTIONS, variables })
  LANGUAGES.set(clock, language)
  return language
}
