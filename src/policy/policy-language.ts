import type { Clock } from '../base/clock.ts'
import type { ActionDefinition } from './actions/action.ts'
import { ACTIONS } from './actions/all-actions.ts'
import type { AddressTable } from './exchange/address-tables.ts'
import type { PolicyExchange } from './exchange/policy-exchange.ts'
import { Account } from './expression/account.ts'
import { ExpressionLanguage } from './expression/expression.ts'
import type { NameProblem, Scope } from './expression/expression-check.ts'
import type { Variable } from './expression/expression-function.ts'
import { Pattern } from './expression/pattern.ts'
import type { ValueInput } from './expression/value.ts'
import { ATTEMPTS } from './outbound/http-asker.ts'
import type { PolicyReach } from './outbound/outbound-allow.ts'
import type { Phase } from './phase.ts'
import { FUNCTION_PRICES, FUNCTIONS } from './vocabulary/all-functions.ts'
import { meantVariable } from './vocabulary/mistaken-names.ts'
import { POLICY_MEANING } from './vocabulary/policy-meaning.ts'
import {
  ADDRESS_VARIABLES,
  NO_RESULTS,
  TABLE_SETTINGS,
  UNAVAILABLE_VARIABLES,
  VARIABLES,
} from './vocabulary/variables.ts'

/** One for each clock: it costs 2 ms and 400 KB and is the same for every policy. */
const LANGUAGES = new WeakMap<Clock, ExpressionLanguage<PolicyExchange>>()

const TLS_RESULT = 'terminate_tls'
const TLS = /^conn\.tls\.(?=client\.|server\.)/

/** Results of terminate-tls with the certificates of client and server, as `conn.tls` has them. */
const TLS_RESULTS: ReadonlyMap<string, Variable<PolicyExchange>> = new Map(
  Array.from(VARIABLES).flatMap(([name, variable]) => {
    if (!TLS.test(name)) return []
    const read: typeof variable.read = (exchange, evaluation) =>
      exchange.results.has(TLS_RESULT) ? variable.read(exchange, evaluation) : undefined
    return [[`actions.ngrok.${TLS_RESULT}.${name.replace(TLS, '')}`, { ...variable, read }]]
  }),
)

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
  for (const [name, variable] of TLS_RESULTS) variables.set(name, variable)
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

const RESULTS = 'actions.ngrok.'
const VARS = 'vars.'

/** What expressions may name at one place of a document: it grows as the document is read. */
export class PolicyScope {
  readonly #byNamespace = new Map<string, ActionDefinition>()
  /** Namespaces of actions that stand before. */
  readonly #ran = new Set<string>()
  /** Namespaces of actions that are not available. */
  readonly #unavailable = new Set<string>()
  readonly #vars = new Set<string>()
  readonly #hasTable: (table: AddressTable) => boolean
  #areVarsKnown = true

  /** `hasTable`: see `PolicyReach`. */
  constructor(hasTable: PolicyReach['hasTable'] = () => true) {
    this.#hasTable = hasTable
    for (const action of ACTIONS.values()) this.#byNamespace.set(action.namespace, action)
  }

  /** Variables live for a phase; results live for the exchange, or while a connection is judged. */
  enterPhase(phase: Phase): void {
    this.#vars.clear()
    this.#areVarsKnown = true
    if (phase === 'on_http_request') this.#ran.clear()
  }

  addAction({ namespace }: ActionDefinition): void {
    this.#ran.add(namespace)
  }

  /** The results of an action that was refused: to read them is no second mistake. */
  addUnavailable(type: string): void {
    this.#unavailable.add(type.replaceAll('-', '_'))
  }

  /** Without a name any variable may be set from here on. */
  addVariable(name: string | undefined): void {
    if (name === undefined) this.#areVarsKnown = false
    else this.#vars.add(name)
  }

  /** The scope of one expression, with names of its own. */
  in(phase: Phase, names: Readonly<Record<string, string>> = {}): Scope {
    const typeOf = (path: string) =>
      Object.hasOwn(names, path) ? names[path] : this.#typeOf(path, phase)
    const meant = (path: string) => this.#meant(path, typeOf)
    return { phase, typeOf, names: () => this.#names(phase), meant }
  }

  #meant(path: string, typeOf: Scope['typeOf']): string | undefined {
    const isKnown = (name: string) => VARIABLES.has(name)
    const meant = meantVariable(path, Array.from(VARIABLES.keys()), isKnown)
    if (!meant) return undefined
    if ('sentence' in meant) return meant.sentence
    const known = typeOf(meant.name)
    return typeof known === 'object' ? known.message : `did you mean ${meant.name}?`
  }

  #typeOf(path: string, phase: Phase): string | NameProblem | undefined {
    const table = ADDRESS_VARIABLES[path]?.table
    if (table && !this.#hasTable(table)) {
      const remedy = `set ${TABLE_SETTINGS[table]} at the gateway to a MaxMind database file`
      return { message: `${path} is not available: ${remedy}`, isForeign: true }
    }
    const variable = VARIABLES.get(path)
    if (variable) {
      if (!variable.phases || variable.phases.includes(phase)) return variable.type
      return refused(`${path} is not available in ${phase}`)
    }
    if (path.startsWith(VARS)) return this.#varType(path.slice(VARS.length))
    if (path.startsWith(RESULTS)) return this.#resultType(path.slice(RESULTS.length), phase)
    const known = Object.entries(UNAVAILABLE_VARIABLES).find(([start]) => startsWith(path, start))
    return known && { message: `${path} is not available: ${known[1]}`, isForeign: true }
  }

  #names(phase: Phase): string[] {
    const readable = Array.from(VARIABLES).filter(
      ([, { phases }]) => !phases || phases.includes(phase),
    )
    return readable.map(([name]) => name)
  }

  #varType(path: string): string | NameProblem | undefined {
    const [name = ''] = path.split('.', 1)
    if (this.#areVarsKnown && !this.#vars.has(name)) {
      return refused(`vars.${name} is not set by an earlier set-vars in the same phase`)
    }
    return path === name ? 'dyn' : undefined
  }

  #resultType(path: string, phase: Phase): string | NameProblem | undefined {
    const [namespace = ''] = path.split('.', 1)
    const action = this.#byNamespace.get(namespace)
    if (!action) return this.#unavailable.has(namespace) ? 'dyn' : undefined
    if (path === namespace) return 'map(dyn)'
    if (!this.#ran.has(namespace)) {
      if (phase !== 'on_tcp_connect' && TLS_RESULTS.has(`${RESULTS}${path}`)) {
        const name = `conn.tls.${path.slice(namespace.length + 1)}`
        return refused(`${RESULTS}${path} has no value in ${phase}: use ${name}`)
      }
      return refused(`${RESULTS}${path} has no value, because no ${action.type} comes before this`)
    }
    const mirrored = TLS_RESULTS.get(`${RESULTS}${path}`)
    if (mirrored) return mirrored.type
    const field = path.slice(namespace.length + 1)
    if (Object.hasOwn(action.results, field)) return action.results[field]
    const names = Object.keys(action.results)
    if (names.some((name) => name.startsWith(`${field}.`))) return 'map(dyn)'
    if (names.some((name) => field.startsWith(`${name}.`))) return undefined
    const missing = NO_RESULTS[path]
    if (missing !== undefined) {
      const message = `there is no data for ${RESULTS}${path} at this gateway: ${missing}`
      return { message, isForeign: true }
    }
    return refused(`${action.type} has no result ${field}`)
  }
}

function startsWith(path: string, start: string): boolean {
  return path === start || path.startsWith(start.endsWith('.') ? start : `${start}.`)
}

const refused = (message: string): NameProblem => ({ message, isForeign: false })
