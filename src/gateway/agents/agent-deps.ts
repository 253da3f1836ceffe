import type { Clock } from '../../base/clock.ts'
import type { Limiter } from '../../base/limiter.ts'
import type { Logger } from '../../base/logger.ts'
import type { ClientSettings } from '../../settings/gateway-settings.ts'
import type { Authority } from '../access/authority.ts'
import type { NameClaims } from '../access/name-claims.ts'
import type { EndpointPolicies } from '../endpoints/endpoint-policies.ts'
import type { EndpointRegistry } from '../endpoints/endpoint-registry.ts'
import type { OtherGateways } from '../ports/other-gateways.ts'
import type { AccountQuotas } from '../records/account-quotas.ts'
import type { BotUserStore } from '../records/bot-user-store.ts'
import type { IssuedIds } from '../records/resource-id.ts'
import type { Devices } from '../resources/devices/devices.ts'
import type { BufferAccount } from '../streams/buffer-account.ts'
import type { Binder } from './binder.ts'
import type { SessionTable } from './session-table.ts'

/** Limits and timeouts of a single agent connection. */
export interface AgentLimits {
  /** At this number, each address gets a fair share (`ConnectionShares`). */
  readonly connections: number
  readonly tlsHandshakeMs: number
  /** From the end of the handshake to a valid Auth. */
  readonly authMs: number
  /** From the end of the handshake to the answer for a device that joins. It may have to wait before it. */
  readonly joinMs: number
  /** Timeout for a complete message, and for the agent's answer to a command. */
  readonly rpcMs: number
  readonly heartbeatIntervalMs: number
  readonly heartbeatToleranceMs: number
  readonly endpointsPerSession: number
  /** A returning device counts as complete when it binds nothing for this long. */
  readonly returnMs: number
  /** The same for a device that reports completion. Its other names then count as disconnected. */
  readonly progressMs: number
}

export const DEFAULT_AGENT_LIMITS: AgentLimits = {
  connections: 10_000,
  tlsHandshakeMs: 10_000,
  authMs: 10_000,
  joinMs: 20_000,
  rpcMs: 10_000,
  heartbeatIntervalMs: 10_000,
  heartbeatToleranceMs: 15_000,
  endpointsPerSession: 10_000,
  returnMs: 10_000,
  progressMs: 60_000,
}

/** Dependencies of every agent connection. */
export interface AgentDeps {
  readonly authority: Authority
  readonly registry: EndpointRegistry
  readonly quotas: AccountQuotas
  readonly sessions: SessionTable
  readonly devices: Pick<Devices, 'refused' | 'refusedDuplicate'>
  readonly binder: Binder
  /** Claims each name if there are other nodes. */
  readonly names: NameClaims
  readonly others: Pick<OtherGateways, 'all' | 'ask'>
  readonly policies: EndpointPolicies
  readonly ids: IssuedIds
  readonly botUsers: Pick<BotUserStore, 'get'>
  /** Limits wrong authtokens per address. */
  readonly failures: Limiter
  readonly limits: AgentLimits
  /** Makes sure that HTTPS clients of a host get a certificate. */
  readonly coverHost: (host: string, ownerId: string | null) => Promise<void>
  /** Listens on a TCP address. Throws ServiceError 334 with the error of the system as its cause. */
  readonly openAddress: (address: string) => Promise<void>
  /** Unsent bytes for slow visitors and devices, for the whole gateway. */
  readonly buffers: BufferAccount
  /**
   * Minimum rate in bytes per second. Slower requests may be ended while others wait for the device; 0: off.
   */
  readonly leastRate: number
  readonly clients: ClientSettings
  /** Reported to agents as the version of the service. */
  readonly version: string
  readonly log: Logger
  readonly clock: Clock
}
