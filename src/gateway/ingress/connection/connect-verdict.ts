import type { MaybePromise, Outcome } from '../../../policy/exchange/outcome.ts'
import { type Connection, PolicyExchange } from '../../../policy/exchange/policy-exchange.ts'
import type { EndTls } from '../../../policy/exchange/tls-terms.ts'
import type { Endpoint } from '../../endpoints/endpoint.ts'
import { endpointFacts } from '../../endpoints/endpoint-facts.ts'

/** What `on_tcp_connect` of an endpoint decides about a connection, before there is any request. */
export function connectVerdict(
  endpoint: Endpoint,
  connection: Connection,
  endTls?: EndTls,
): MaybePromise<Outcome> {
  const { policy, traffic } = endpoint
  if (!policy.hasConnectRules) return { kind: 'continue' }
  const exchange = new PolicyExchange({ connection, endpoint: endpointFacts(endpoint), endTls })
  const outcome = policy.onTcpConnect(exchange)
  const count = () => {
    if (exchange.account.isOverspent) traffic.overBudget += 1
  }
  if (outcome instanceof Promise) outcome.then(count, count)
  else count()
  return outcome
}
