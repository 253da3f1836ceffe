import type { EndpointFacts } from '../../policy/exchange/policy-exchange.ts'
import type { CompiledPolicy } from '../../policy/policy.ts'
import type { EndpointAddress } from '../records/endpoint-protocol.ts'
import type { StreamPool } from '../streams/stream-pool.ts'
import { RequestStats } from './request-stats.ts'
import { VisitorOutcomes } from './visitor-outcomes.ts'

/** Commands for a connected agent. The agent decides how to carry them out. */
export type AgentCommand = 'restart' | 'stop' | 'update'

/** Why a device is not online. */
export const GONE_REASONS = [
  'stopped',
  'silent',
  'disconnected',
  'kicked',
  'revoked',
  'duplicate',
  'gateway-restarted',
] as const
export type GoneReason = (typeof GONE_REASONS)[number]

/**
 * Reason why a session ended. A GoneReason tells why the device is gone if it has no other session.
 * `superseded`: another session took its place. `gateway-left`: this gateway process ends, and the next
 * process reports the device.
 */
export type SessionEnd = Exclude<GoneReason, 'gateway-restarted'> | 'superseded' | 'gateway-left'

/** Identity that an agent reports. Only the credential is verified. */
export interface AgentIdentity {
  readonly credentialId: string
  /** Hash of the authtoken, which a device that joins again replaces. */
  readonly tokenHash: string
  /** Bot user that owns the credential; null: the gateway's owner. */
  readonly ownerId: string | null
  /** Client id from its first connection; undefined on the first connection. */
  readonly presentedClientId: string | undefined
  /** Created once per device. Undefined if the agent sends no id. */
  readonly deviceId: string | undefined
  /**
   * Number of this connection: 0 for the first connection of a client, 1 and more for additional connections.
   */
  readonly legNumber?: number
  /** Created once per process. Undefined if the agent sends no id. */
  readonly instance: string | undefined
  /** Whether the agent reports when it has bound all of its names. */
  readonly tellsComplete?: boolean
  /** The agent sends its own heartbeats within this interval and wants no others. Undefined: not reported. */
  readonly ownHeartbeatMs?: number | undefined
  readonly agentVersion: string
  /** Whether the agent supports only version 2 of the protocol, like agents of version 2. */
  readonly isOfVersion2?: boolean
  readonly os: string
  readonly arch: string
  readonly hostname: string
  /** Free text. It contains the device id. */
  readonly metadata: string
  /** Address and port. */
  readonly remoteAddress: string
  /** Reason why a command is not supported; empty if it is supported. */
  readonly unsupported: Readonly<Record<AgentCommand, string>>
}

/** A refused process that has the identity of another device. */
export interface Duplicate {
  /** Milliseconds since the epoch. */
  readonly seenAt: number
  readonly ip: string
}

/** An endpoint that is not served although its agent considers it online. */
export interface RefusedEndpoint {
  /** `ep_<ksuid>`, as known to the agent. */
  readonly id: string
  /** As far as the bind of the agent tells it; its host is `not-served.invalid` if unknown. */
  readonly url: string
  /** Milliseconds since the epoch. */
  readonly since: number
  /** Error code of the service, such as 316. */
  readonly code: number
  readonly message: string
}

/** An agent session as the rest of the gateway sees it. */
export interface ConnectedAgent {
  /** `ts_<ksuid>`. */
  readonly id: string
  readonly identity: AgentIdentity
  /** Milliseconds since the epoch. */
  readonly startedAt: number
  /** Round trip of the last heartbeat, in milliseconds. Undefined before the first echo. */
  readonly latencyMs: number | undefined
  /** The most recent duplicate; undefined if there was no duplicate. */
  readonly duplicate: Duplicate | undefined
  endpoints(): AgentEndpoint[]
  refusedEndpoints(): readonly RefusedEndpoint[]
  /** Throws a ServiceError if the agent cannot or does not carry out the command. */
  command(command: AgentCommand): Promise<void>
  /** Takes one endpoint offline and tells the agent why. */
  stopTunnel(endpoint: AgentEndpoint, code: number, message: string): void
  /** Takes all its endpoints offline at once and closes the session. */
  end(reason: string, why?: SessionEnd): void
}

const PORT = /:([0-9]+)$/

const known = new WeakMap<Endpoint, EndpointFacts>()

/** Facts about an endpoint for policies. Cached, because they never change and every request reads them. */
export function endpointFacts(endpoint: Endpoint): EndpointFacts {
  let facts = known.get(endpoint)
  if (!facts) {
    facts = readFacts(endpoint)
    known.set(endpoint, facts)
  }
  return facts
}

function readFacts({ id, url, host, protocol }: Endpoint): EndpointFacts {
  const port = Number(PORT.exec(url)?.[1] ?? (protocol === 'http' ? 80 : 443))
  return { id, url, host: host.replace(PORT, ''), port, protocol }
}

/** Traffic of an endpoint since it opened. The ingress counts it, the management API shows it. */
export class EndpointTraffic {
  static #begun = 0
  /** Sequence number of its newest exchange, among the exchanges of all endpoints. */
  lastBegun = 0
  requests = 0
  /** Exchanges and upgraded connections under way. */
  active = 0
  /** Requests that the gateway answered itself, because of the policy, the device or a limit. */
  refused = 0
  /** Requests whose policy exceeded the computing time of one request. */
  overBudget = 0
  /** Number of answers of the gateway, by error code. */
  readonly errors = new Map<string, number>()
  bytesIn = 0
  bytesOut = 0
  /** Status classes and durations of ended requests; undefined before the first. */
  stats: RequestStats | undefined
  /** Outcomes of requests that were sent to the device. */
  readonly outcomes = new VisitorOutcomes()

  countBegin(): void {
    this.requests += 1
    this.active += 1
    EndpointTraffic.#begun += 1
    this.lastBegun = EndpointTraffic.#begun
  }

  /** Counts the end of a request. `status` is 0 if no response began. */
  countEnd(status: number, ms: number): void {
    this.stats ??= new RequestStats()
    this.stats.count(status, ms)
  }

  countRefusal(code: string | undefined): void {
    this.refused += 1
    if (code !== undefined) this.errors.set(code, (this.errors.get(code) ?? 0) + 1)
  }
}

interface EndpointBase extends EndpointAddress {
  /** `ep_<ksuid>`; sorts by creation time. */
  readonly id: string
  /** Bot user that owns the endpoint; null: the gateway's owner. */
  readonly ownerId: string | null
  /** As reported to its owner, with the ingress port unless it is the scheme's default. */
  readonly url: string
  /** JSON or YAML, as it was sent. */
  readonly trafficPolicy: string | null
  /** The compiled policy; a policy without rules if `trafficPolicy` is null. */
  readonly policy: CompiledPolicy
  readonly metadata: string
  /** Milliseconds since the epoch. */
  readonly openedAt: number
  readonly traffic: EndpointTraffic
  /** Its member id in a pool, the same after a reconnect. Undefined: the endpoint does not pool. */
  readonly poolMember?: string | undefined
}

/** Protocol of the upstream. `http2`: HTTP/2 with prior knowledge (RFC 9113 3.3). */
export type AppProtocol = 'http1' | 'http2'

/** An address that a connected agent serves. */
export interface AgentEndpoint extends EndpointBase {
  readonly type: 'agent'
  readonly forwardsTo: string
  /** Name for people, as the agent sent it. */
  readonly name?: string
  readonly description?: string
  /** Time of the agent's last change, in milliseconds since the epoch. */
  readonly updatedAt?: number
  /** Rules from endpoint options. They run around the rules of its policy. */
  readonly around?: object | undefined
  readonly streams: StreamPool
  readonly sessionId: string
  /** Whether the gateway has chosen its address. The endpoint gets the same address again. */
  readonly isDrawn?: boolean
  /**
   * Timeout of the upstream until its answer begins, in milliseconds. Undefined: the default of the gateway.
   */
  readonly answerMs?: number | undefined
  /** HTTP/1.1 unless the agent says otherwise. */
  readonly appProtocol?: AppProtocol | undefined
  /** The upstream speaks TCP, its visitors WebSocket. */
  readonly isBehindWebSocket?: boolean
}

/** An address that lasts until it is deleted. It has no device: its policy handles all traffic. */
export interface CloudEndpoint extends EndpointBase {
  readonly type: 'cloud'
  readonly trafficPolicy: string
  /** Why its stored policy is invalid in this version. All traffic is then refused. */
  readonly policyProblem?: string | undefined
  readonly description: string
  readonly updatedAt: number
}

/** An address that receives traffic. */
export type Endpoint = AgentEndpoint | CloudEndpoint
