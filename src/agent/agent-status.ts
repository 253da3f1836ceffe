import type { LinkState } from './link-state.ts'
import type { Reason } from './problem.ts'
import type { TunnelState } from './tunnel-state.ts'

/** The one SDK session, as people see it. Times are milliseconds since the epoch. */
export interface LinkStatus {
  readonly state: LinkState
  readonly since: number
  readonly reason?: Reason
  readonly serviceCode?: string | undefined
  readonly remedy?: string
  readonly lastError?: string
  readonly nextRetryAt?: number | undefined
  /** Round trip of the last heartbeat. */
  readonly latencyMs?: number | undefined
}

/** Where the default policy in force came from. */
export interface DefaultPolicyStatus {
  /** `kept`: the file is missing or bad, the last good copy is in force. */
  readonly source: 'file' | 'kept'
  readonly loadedAt: number
  /** What is wrong with the file, with its line and column. */
  readonly problem?: string | undefined
}

/** The agent's own endpoint and whether the agent reaches itself through it. */
export interface OwnEndpointStatus {
  readonly domain: string
  readonly url: string
  readonly state: TunnelState
  readonly since: number
  readonly reason?: Reason
  readonly lastError?: string
  /** Outcome of the last end-to-end probe; `unknown` before the first. */
  readonly reachable: 'yes' | 'no' | 'unknown'
  readonly lastProbeAt?: number | undefined
}

/** Is it fine, and if not, what to do. */
export interface AgentStatus {
  /** One sentence, such as "12 of 14 tunnels online; service unreachable for 3 min: dns". */
  readonly verdict: string
  /** True when every tunnel is online and nothing waits for a person. */
  readonly healthy: boolean
  /** True when the restore is over and the link is up: what `/readyz` answers. */
  readonly ready: boolean
  /** Why `ready` is false, one sentence each. */
  readonly notReady: readonly string[]
  readonly startedAt: number
  readonly deviceId: string
  readonly link: LinkStatus
  readonly tunnels: Readonly<Record<TunnelState, number>> & { readonly total: number }
  /** Rows that could not be read and stay untouched, by id. */
  readonly damagedRows: readonly string[]
  readonly ownEndpoint: OwnEndpointStatus | undefined
  readonly defaultPolicy: DefaultPolicyStatus
  readonly versions: { readonly agent: string; readonly node: string; readonly sdk: string }
  /** `skewMs`: wall clock minus the service's, once it was compared. */
  readonly clock: { readonly now: number; readonly skewMs: number | undefined }
}
