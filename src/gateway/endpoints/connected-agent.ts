import type { GoneReason } from '../records/device-store.ts'
import type { AgentEndpoint } from './endpoint.ts'

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
