import type { Connection } from '../../../policy/exchange/policy-exchange.ts'
import type { Endpoint } from '../../endpoints/endpoint.ts'

/** A connection that a policy has judged before there was HTTP on it. */
export interface Admitted {
  readonly facts: Connection
  /** Whose `on_tcp_connect` is done with it; undefined: each request goes through it. */
  readonly endpoint: Endpoint | undefined
  /** All whose connect rules are done with it; shared by the streams of one visitor's connection. */
  readonly by?: WeakSet<Endpoint> | undefined
}
