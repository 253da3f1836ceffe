import type { Clock } from '../../base/clock.ts'
import type { Limiter } from '../../base/limiter.ts'
import type { Logger } from '../../base/logger.ts'
import type { Authority } from '../access/authority.ts'
import type { NameClaims } from '../access/name-claims.ts'
import type { Devices } from '../devices/devices.ts'
import type { EndpointPolicies } from '../endpoints/endpoint-policies.ts'
import type { EndpointRegistry } from '../endpoints/endpoint-registry.ts'
import type { AccountQuotas } from '../records/account-quotas.ts'
import type { BotUserStore } from '../records/bot-user-store.ts'
import type { IssuedIds } from '../records/resource-id.ts'
import type { BufferAccount } from '../streams/buffer-account.ts'
import type { Binder } from './binder.ts'
import type { LeastClientVersions } from './client-versions.ts'
import type { SessionTable } from './session-table.ts'

/** Sizes and times that a single agent connection keeps to. */
export interface AgentLimits {
  /** When there are as many, each address has its share (`ConnectionShares`). */
  readonly connections: number
  readonly tlsHandshakeMs: number
  /** From the end of the handshake to a valid Auth. */
  readonly authMs: number
  /** For one message to arrive whole, and for the agent's answer to a command. */
  readonly rpcMs: number
  readonly heartbeatIntervalMs: number
  readonly heartbeatToleranceMs: number
  readonly endpointsPerSession: number
  /** A device that is back has taken its names when it binds nothing for so long. */
  readonly returnMs: number
  /** The same for one that says when it has taken them: after that its other names count as away. */
  readonly progressMs: number
}

export const DEFAULT_AGENT_LIMITS: AgentLimits = {
  connections: 10_000,
  tlsHandshakeMs: 10_000,
  authMs: 10_000,
  rpcMs: 10_000,
  heartbeatIntervalMs: 10_000,
  heartbeatToleranceMs: 15_000,
  endpointsPerSession: 10_000,
  returnMs: 10_000,
  progressMs: 60_000,
}

/** What every agent connection works with. */
export interface AgentDeps {
  readonly authority: Authority
  readonly registry: EndpointRegistry
  readonly quotas: AccountQuotas
  readonly sessions: SessionTable
  readonly devices: Pick<Devices, 'refused' | 'refusedDuplicate'>
  readonly binder: Binder
  /** Claims each name if there are other nodes. */
  readonly names: NameClaims
  readonly policies: EndpointPolicies
  readonly ids: IssuedIds
  readonly botUsers: Pick<BotUserStore, 'get'>
  /** Of wrong authtokens, by address. */
  readonly failures: Limiter
  readonly limits: AgentLimits
  /** Makes sure that HTTPS clients of a host get a certificate. */
  readonly coverHost: (host: string) => Promise<void>
  /** Listens on a TCP address; throws ServiceError 334 when another program does. */
  readonly openAddress: (address: string) => Promise<void>
  /** For bytes of the whole gateway that wait for somebody. */
  readonly buffers: BufferAccount
  /** Bytes a second; who moves fewer through a device is ended when others wait. 0: nobody is. */
  readonly leastRate: number
  /** Which clients are told to update, and which are refused. */
  readonly leastClients?: LeastClientVersions | undefined
  /** Where the gateway is: clients show it. */
  readonly region: string
  /** Told to agents as the version of the service. */
  readonly version: string
  readonly log: Logger
  readonly clock: Clock
}
