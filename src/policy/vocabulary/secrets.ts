import type { PolicyExchange } from '../exchange/policy-exchange.ts'
import type { SecretName } from '../exchange/policy-secrets.ts'
import { type ExpressionFunction, fnWithin } from '../expression/expression-function.ts'
import { childrenOf, type Node, pathOf, textOf } from '../expression/expression-tree.ts'
import { PHASES } from '../phase.ts'

/** Names of vaults and of secrets. */
export const SECRET_NAME = /^[A-Za-z0-9_/.-]{1,128}$/
export const SECRET_NAME_FORM = 'letters, digits and _/.-, at most 128 characters'

const [ROOT, GET] = ['secrets', 'get']

/** `secrets.get('vault', 'name')`. */
export const SECRET_FUNCTIONS: readonly ExpressionFunction<PolicyExchange>[] = [
  {
    // Like a function of requests, it has no value when a policy is checked.
    ...fnWithin<['string', 'string'], PolicyExchange>(
      `${ROOT}.${GET}`,
      ['string', 'string'],
      'string',
      ({ subject }, vault, name) => subject.readSecret({ vault, name }),
      PHASES,
    ),
    check: checkNames,
  },
]

/** Literals make all uses known before any request. */
function checkNames(args: readonly Node[]): string | undefined {
  const names = args.map(textOf)
  if (names.includes(undefined)) {
    return "secrets.get() needs two string literals, such as secrets.get('vault', 'name')"
  }
  const wrong = names.find((name) => !SECRET_NAME.test(name ?? ''))
  if (wrong === undefined) return undefined
  return `"${wrong.slice(0, 128)}" is not a name of a vault or secret: use ${SECRET_NAME_FORM}`
}

/** The secrets that an expression reads. */
export function secretsIn(node: Node): SecretName[] {
  const own: SecretName[] = []
  if (node.kind === 'call' && node.name === GET && node.target && pathOf(node.target) === ROOT) {
    const [vault, name] = node.args.map(textOf)
    if (vault !== undefined && name !== undefined) own.push({ vault, name })
  }
  return [...own, ...childrenOf(node).flatMap(secretsIn)]
}
