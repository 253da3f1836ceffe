import type { EndpointFacts } from '../../policy/exchange/policy-exchange.ts'
import type { CompiledPolicy } from '../../policy/policy.ts'
import type { GoneReason } from '../records/device-store.ts'
import type { EndpointAddress } from '../records/endpoint-protocol.ts'
import type { StreamPool } from '../streams/stream-pool.ts'
import { VisitorOutcomes } from './visitor-outcomes.ts'

/** What a connected agent can be told to do; it decides itself how it obeys. */
export type AgentCommand = 'restart' | 'stop' | 'update'

/**
 * Why a session ended: why its device is gone if it has no other, or that another session took its
 * place, or that this gateway ends and the next process has to tell.
 */
export type SessionEnd = Exclude<GoneReason, 'gateway-restarted'> | 'superseded' | 'gateway-left'

/** Who an agent says it is. Only the credential was proved. */
export interface AgentIdentity {
  readonly credentialId: string
  /** The bot user that has the credential; null for one of the gateway's owner. */
  readonly ownerId: string | null
  /** What it was given when it connected first; undefined on that first time. */
  readonly presentedClientId: string | undefined
  /** Made once per device; undefined when the agent sends none. */
  readonly deviceId: string | undefined
  /** 0 for the first connection of a client, 1 and more for those beside it. */
  readonly legNumber?: number
  /** Made once per process; undefined when the agent sends none. */
  readonly instance: string | undefined
  /** It says when it has bound all of its names. */
  readonly tellsComplete?: boolean
  /** Within it the agent sends heartbeats of its own, and wants none; undefined: it says nothing. */
  readonly ownHeartbeatMs?: number | undefined
  readonly agentVersion: string
  /** It speaks version 2 of the protocol alone, as agents of version 2 do. */
  readonly isOfVersion2?: boolean
  readonly os: string
  readonly arch: string
  readonly hostname: string
  /** Free text; the device id travels in it. */
  readonly metadata: string
  /** Address and port. */
  readonly remoteAddress: string
  /** Why a command is not supported; empty when it is. */
  readonly unsupported: Readonly<Record<AgentCommand, string>>
}

/** Another process that has the identity of a device, and was refused. */
export interface Duplicate {
  /** Milliseconds since the epoch. */
  readonly seenAt: number
  readonly ip: string
}

/** An endpoint that an agent takes for online and that is not served. */
export interface RefusedEndpoint {
  /** `ep_<ksuid>`, as the agent knows it. */
  readonly id: string
  /** As far as it is known. */
  readonly url: string
  /** Milliseconds since the epoch. */
  readonly since: number
  /** Of the service, such as 316. */
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
  /** Round trip of the last heartbeat; undefined before the first echo. */
  readonly latencyMs: number | undefined
  /** The last one; undefined when there was none. */
  readonly duplicate: Duplicate | undefined
  endpoints(): AgentEndpoint[]
  refusedEndpoints(): readonly RefusedEndpoint[]
  /** Throws a ServiceError when the agent cannot or does not obey. */
  command(command: AgentCommand): Promise<void>
  /** Takes one endpoint offline and tells the agent why. */
  stopTunnel(endpoint: AgentEndpoint, code: number, message: string): void
  /** Takes all its endpoints offline at once and closes the session. */
  end(reason: string, why?: SessionEnd): void
}

const PORT = /:([0-9]+)$/

const known = new WeakMap<Endpoint, EndpointFacts>()

/** What a policy may know of its endpoint. It stays the same, and is asked for with each request. */
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
