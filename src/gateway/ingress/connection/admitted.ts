import type { Connection } from '../../../policy/exchange/policy-exchange.ts'
import type { Endpoint } from '../../endpoints/endpoint.ts'

/** A connection that a policy has judged before there was HTTP on it. */
export interface Admitted {
  readonly facts: Connection
  /** Whose `on_tcp_connect` is done with it; undefined: each request goes through it. */
  readonly endpoint: Endpoint | undefined
}
