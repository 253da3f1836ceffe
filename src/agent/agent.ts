import type { Clock } from '../base/clock.ts'
import type { ListenAddress } from '../base/listen-address.ts'
import type { Logger } from '../base/logger.ts'
import type { Secret } from '../base/secret.ts'
import type { Database } from '../store/database.ts'
import type { AgentStatus } from './agent-status.ts'
import type { JsonObject, Tunnel, TunnelSpec } from './tunnel.ts'

export interface AgentOptions {
  /** Opened with TUNNEL_MIGRATIONS among its migrations. */
  readonly database: Database
  /** Holds `device-id`. */
  readonly dataDir: string
  readonly authtoken: {
    /** Files that may hold the token, first one wins; watched. */
    readonly files: readonly string[]
    readonly value: Secret | undefined
  }
  /** `host:port` of the service; undefined is the hosted one. */
  readonly serverAddr: string | undefined
  /** PEM text of the CA that signs the service's certificates. */
  readonly caCert: string | undefined
  /** The API's public name and the unix socket (absolute path) that serves it. */
  readonly own: { readonly domain: string; readonly socketPath: string } | undefined
  readonly defaultPolicyPath: string
  readonly forward: {
    /** AGENT_FORWARD_ALLOW: hosts or CIDRs, each with an optional `:port`. */
    readonly allow: readonly string[]
    /** The agent's own listeners, where no tunnel may lead; asked at each check. */
    readonly ownAddresses: () => readonly ListenAddress[]
  }
  readonly maxTunnels: number
  readonly version: string
  readonly log: Logger
  readonly clock: Clock
  /** The SDK hangs for good: stop cleanly and exit with 75, a fresh process works. */
  readonly onPoisoned: () => void
}

/** The answer to a create or replace; `pending`: stored, and opened as soon as that is possible. */
export interface Placed {
  readonly tunnel: Tunnel
  readonly pending: boolean
}

/** The device's tunnels: what is wanted is in the database, what is true is supervised. */
export class Agent {
  readonly #options: AgentOptions

  constructor(options: AgentOptions) {
    this.#options = options
  }

  /** Restores every tunnel in the background. Throws a StartError when a person has to act. */
  start(): Promise<void> {
    return Promise.reject(new Error(`not there yet: ${this.#options.dataDir}`))
  }

  /** Closes every endpoint and the link; rows stay. */
  stop(): Promise<void> {
    return Promise.resolve()
  }

  /** Oldest first. */
  list(): Tunnel[] {
    return []
  }

  /** By id, full host, or first label when only one tunnel has it. Throws AppError `tunnel-not-found` or `ambiguous-tunnel`. */
  find(urlPart: string): Tunnel {
    throw new Error(`not there yet: ${urlPart}`)
  }

  /** Stores the tunnel, then opens it. A permanent refusal removes the row and is thrown. */
  create(spec: TunnelSpec): Promise<Placed> {
    return Promise.reject(new Error(`not there yet: ${spec.domain}`))
  }

  /** Creates or replaces the tunnel of `domain`; after a permanent refusal the old one is back. */
  replace(domain: string, _spec: TunnelSpec): Promise<Placed & { readonly created: boolean }> {
    return Promise.reject(new Error(`not there yet: ${domain}`))
  }

  /** Closes the endpoint at the service, then forgets the tunnel. */
  remove(urlPart: string): Promise<void> {
    return Promise.reject(new Error(`not there yet: ${urlPart}`))
  }

  /** The tunnel's own policy, or the default one. */
  policyInForce(tunnel: Tunnel): JsonObject {
    return tunnel.spec.policy ?? {}
  }

  status(): AgentStatus {
    throw new Error('not there yet')
  }

  /** Calls `listener` after the state of the link or of a tunnel changed; returns how to stop that. */
  onChange(_listener: () => void): () => void {
    return () => {}
  }

  /**
   * Answers the agent's own end-to-end probe: serve `GET {PROBE_PATH}/{nonce}` without a token,
   * 200 with this text, 404 when it is undefined.
   */
  answerProbe(_nonce: string): string | undefined {
    return undefined
  }
}
