import type { CompiledPolicy } from '../../policy/policy.ts'
import type { EndpointAddress } from '../records/endpoint-protocol.ts'
import type { StreamPool } from '../streams/stream-pool.ts'
import { VisitorOutcomes } from './visitor-outcomes.ts'

/** What went through an endpoint since it opened. The ingress counts, the management API shows. */
export class EndpointTraffic {
  static #begun = 0
  /** When its newest exchange began, counted in those of all endpoints. */
  lastBegun = 0
  requests = 0
  /** Exchanges and upgraded connections that are under way. */
  active = 0
  /** Requests that the gateway had to answer itself, because policy, device or limits said so. */
  refused = 0
  /** Requests for which the policy had more to compute than there is time for one. */
  overBudget = 0
  /** How often it answered with which error code. */
  readonly errors = new Map<string, number>()
  bytesIn = 0
  bytesOut = 0
  /** What became of requests that were sent on to the device. */
  readonly outcomes = new VisitorOutcomes()

  countBegin(): void {
    this.requests += 1
    this.active += 1
    EndpointTraffic.#begun += 1
    this.lastBegun = EndpointTraffic.#begun
  }

  countRefusal(code: string | undefined): void {
    this.refused += 1
    if (code !== undefined) this.errors.set(code, (this.errors.get(code) ?? 0) + 1)
  }
}

interface EndpointBase extends EndpointAddress {
  /** `ep_<ksuid>`: sorts by the time it was made. */
  readonly id: string
  /** The bot user whose account it belongs to; null for the account of the gateway's owner. */
  readonly ownerId: string | null
  /** As its owner was told, with the ingress port unless it is the scheme's own. */
  readonly url: string
  /** JSON or YAML as it was sent. */
  readonly trafficPolicy: string | null
  /** The same, compiled; one without rules when there is none. */
  readonly policy: CompiledPolicy
  readonly metadata: string
  /** Milliseconds since the epoch. */
  readonly openedAt: number
  readonly traffic: EndpointTraffic
  /**
   * Which member of a pool it is, the same when it comes back; undefined: it is alone on its address.
   */
  readonly poolMember?: string | undefined
}

/** What the service behind an endpoint speaks; HTTP/2 with prior knowledge (RFC 9113 3.3). */
export type AppProtocol = 'http1' | 'http2'

/** An address that one connected agent serves, for as long as it does. */
export interface AgentEndpoint extends EndpointBase {
  readonly type: 'agent'
  readonly forwardsTo: string
  /** For people, as the agent gave them. */
  readonly name?: string
  readonly description?: string
  /** Milliseconds since the epoch at which its agent has changed it. */
  readonly updatedAt?: number
  /** The rules of its options, which stand around those of its policy. */
  readonly around?: object | undefined
  readonly streams: StreamPool
  readonly sessionId: string
  /** The gateway has chosen its address: it gets the same one again. */
  readonly isDrawn?: boolean
  /** How long its service may take to begin an answer; undefined: as long as the gateway grants. */
  readonly answerMs?: number | undefined
  /** HTTP/1.1 unless its agent says otherwise. */
  readonly appProtocol?: AppProtocol | undefined
  /** Its service speaks TCP, and its visitors WebSocket. */
  readonly isBehindWebSocket?: boolean
}

/** An address that lasts until it is deleted. Nobody serves it: its policy ends all traffic. */
export interface CloudEndpoint extends EndpointBase {
  readonly type: 'cloud'
  readonly trafficPolicy: string
  readonly description: string
  readonly updatedAt: number
}

/** Where traffic comes in. */
export type Endpoint = AgentEndpoint | CloudEndpoint
