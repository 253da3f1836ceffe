import type { Clock } from '../base/clock.ts'
import type { ListenAddress } from '../base/listen-address.ts'
import type { Logger } from '../base/logger.ts'
import type { Secret } from '../base/secret.ts'
import type { Database } from '../store/database.ts'
import type { Connector } from './connector.ts'
import type { PolicyProcess } from './policies/policy-process.ts'
import type { AgentTimings } from './timings.ts'
import type { ForwardRulesOptions } from './upstreams/forward-rules.ts'
import type { UpstreamDefaults } from './upstreams/upstream-options.ts'

/** What an agent is built from. */
export interface AgentOptions {
  /** Opened with TUNNEL_MIGRATIONS among its migrations. */
  readonly database: Database
  readonly connector: Connector
  /** Holds `device-id`. */
  readonly dataDir: string
  readonly authtoken: {
    /** Files that may hold the token, first one wins; watched. */
    readonly files: readonly string[]
    readonly value: Secret | undefined
  }
  /** `host:port` of the service, several in the order of preference; none is the hosted one. */
  readonly serverAddrs: readonly string[]
  /** PEM text of the CA that signs the service's certificates. */
  readonly caCert: string | undefined
  /** The API's public name and the unix socket (absolute path) that serves it. */
  readonly own: { readonly domain: string; readonly socketPath: string } | undefined
  readonly defaultPolicyPath: string
  /** `allow` is AGENT_FORWARD_ALLOW. */
  readonly forward: ForwardRulesOptions
  readonly maxTunnels: number
  /** How services are checked, and how long they may take to begin an answer. */
  readonly upstream?: UpstreamDefaults
  /** What becomes of policy actions that only the hosted service may know; refused elsewhere. */
  readonly unknownActions?: 'warn' | 'refuse'
  /** Checks policies; unset: one that the agent starts when it needs it. */
  readonly policyProcess?: PolicyProcess
  readonly version: string
  readonly log: Logger
  readonly clock: Clock
  /** The SDK hangs for good: stop cleanly and exit with 75, a fresh process works. */
  readonly onPoisoned: () => void
  /** Where the public domain is really reached; unset: where its name leads. */
  readonly ingress?: ListenAddress | undefined
  readonly timings?: AgentTimings
  /** Told to our gateway, which then sends no heartbeats of its own; unset: it sends them. */
  readonly heartbeat?: { readonly intervalS: number; readonly toleranceS: number } | undefined
  /** Keep a session ready at another address, where there are several; unset: yes. */
  readonly hasStandby?: boolean
  /** A number in [0, 1) for all jitter. */
  readonly random?: () => number
}
