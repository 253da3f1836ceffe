import type { EndTls, MaybePromise, Outcome } from '../../../policy/exchange/outcome.ts'
import { type Connection, PolicyExchange } from '../../../policy/exchange/policy-exchange.ts'

import type { Account } from '../../../policy/expression/account.ts'
import { type Endpoint, endpointFacts } from '../../endpoints/endpoint.ts'

/** How a connection has come to an endpoint. */
export interface ConnectOptions {
  readonly endTls?: EndTls | undefined
  /** How many endpoints have handed it on. */
  readonly hops?: number
  /** What the policies of all of them may cost together. */
  readonly account?: Account
}

/** What `on_tcp_connect` of an endpoint decides about a connection, before there is any request. */
export function connectVerdict(
  endpoint: Endpoint,
  connection: Connection,
  options: ConnectOptions = {},
): MaybePromise<Outcome> {
  const { policy, traffic } = endpoint
  if (!policy.hasConnectRules) return { kind: 'continue' }
  const exchange = new PolicyExchange({
    ...options,
    connection,
    endpoint: endpointFacts(endpoint),
  })
  const outcome = policy.onTcpConnect(exchange)
  const count = () => {
    if (exchange.account.isOverspent) traffic.overBudget += 1
  }
  if (outcome instanceof Promise) outcome.then(count, count)
  else count()
  return outcome
}
