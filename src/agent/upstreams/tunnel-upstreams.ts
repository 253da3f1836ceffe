import type { Logger } from '../../base/logger.ts'
import { ProblemError } from '../problem.ts'
import { allowEntryFor, type ForwardRules } from './forward-rules.ts'
import {
  carrierOf,
  type ForwardTarget,
  parseForwardTarget,
  type TunnelProtocol,
} from './forward-target.ts'
import type { UpstreamCheck } from './upstream-check.ts'
import {
  GRANTED_TIMEOUT_S,
  type UpstreamDefaults,
  type UpstreamOptions,
  type UpstreamSettings,
} from './upstream-options.ts'
import type { UpstreamDialer, WayToUpstream } from './upstream-relay.ts'
import { eventOf, type Upstream, type UpstreamFlaw, type VisitorReport } from './upstream-state.ts'

/**
 * Returns the options that our gateway applies to an endpoint: time limit for the start of an answer, number
 * of connections, and PROXY header for raw bytes. Undefined if all are defaults.
 */
function upstreamNotice(
  protocol: TunnelProtocol,
  { timeout, proxy_protocol, max_connections }: UpstreamSettings,
): string | undefined {
  const upstream = {
    ...(timeout !== GRANTED_TIMEOUT_S && { timeout_s: timeout }),
    ...(protocol !== 'http' && proxy_protocol && { proxy_protocol }),
    ...(max_connections && { max_connections }),
  }
  if (Object.keys(upstream).length === 0) return undefined
  return JSON.stringify({ 'device-agent': { upstream } })
}

export interface TunnelUpstreamsOptions {
  readonly rules: ForwardRules
  readonly upstreams: UpstreamCheck
  readonly dialer: UpstreamDialer
  /** Defaults for options that a tunnel does not set. */
  readonly upstream: UpstreamDefaults
  readonly log: Logger
}

/** Upstream settings of a tunnel. */
export interface UpstreamOfTunnel {
  readonly protocol: TunnelProtocol
  /** Normal form, see `formatForwardTarget`. */
  readonly forwardsTo: string
  readonly domain: string
  readonly upstream?: UpstreamOptions | undefined
}

/** Upstream data for an endpoint. */
export interface UpstreamOfEndpoint {
  /** URL that the SDK has to dial. */
  readonly dialUrl: string
  readonly http2: boolean
  /** Options for our gateway. */
  readonly metadata: string | undefined
}

/** Parsed settings of a tunnel's upstream. */
interface UpstreamRead {
  readonly target: ForwardTarget
  readonly settings: UpstreamSettings
  readonly way: WayToUpstream
  /** Tunnels with the same service and the same kind of check share one check. */
  readonly key: string
}

/** Services behind tunnels: whether they are allowed, how they are checked, and their state. */
export class TunnelUpstreams {
  readonly #options: TunnelUpstreamsOptions
  /** Cache: the settings of a tunnel never change, and each status needs them. */
  readonly #read = new WeakMap<UpstreamOfTunnel, UpstreamRead>()

  constructor(options: TunnelUpstreamsOptions) {
    this.#options = options
  }

  /** Throws AppError `forwards-to-not-allowed`. */
  async requireAllowed(tunnel: UpstreamOfTunnel): Promise<void> {
    await this.#options.rules.check(this.#readOf(tunnel).target)
  }

  /** Throws a ProblemError with the reason `upstream` if the target is no longer allowed. */
  async endpointOf(tunnel: UpstreamOfTunnel): Promise<UpstreamOfEndpoint> {
    const { rules, dialer } = this.#options
    const { target, settings, way } = this.#readOf(tunnel)
    await rules.check(target).catch((error) => {
      throw new ProblemError({
        reason: 'upstream',
        detail: error.message,
        remedy: `Forward to an allowed address, or add ${allowEntryFor(target)} to AGENT_FORWARD_ALLOW and restart the agent.`,
        permanent: true,
      })
    })
    const dialUrl = await dialer.dialUrl(target, way)
    const metadata = upstreamNotice(tunnel.protocol, settings)
    return { dialUrl, http2: settings.http2, metadata }
  }

  /** Checks the service regularly until the returned function is called. */
  watch(tunnel: UpstreamOfTunnel): () => void {
    const { upstreams, dialer } = this.#options
    const { target, settings, way, key } = this.#readOf(tunnel)
    const unwatch = upstreams.watch(key, target, settings)
    const letGo = dialer.hold(target, way)
    return () => {
      unwatch()
      letGo()
    }
  }

  stateOf(tunnel: UpstreamOfTunnel): Upstream {
    return this.#options.upstreams.stateOf(this.#readOf(tunnel).key)
  }

  flawOf(tunnel: UpstreamOfTunnel): UpstreamFlaw | undefined {
    return this.#options.upstreams.flawOf(this.#readOf(tunnel).key)
  }

  /**
   * Handles a report about visitors. Logs only changes, because a service that fails for a week must not fill
   * the disk.
   */
  told(tunnel: UpstreamOfTunnel, report: VisitorReport, before: VisitorReport | undefined): void {
    const { upstreams, log } = this.#options
    upstreams.told(this.#readOf(tunnel).key, eventOf(report))
    const { state, failed, abandoned, oldestWaitMs } = report
    if (state === before?.state) return
    const { domain, forwardsTo } = tunnel
    const level = state === 'answered' ? 'info' : 'warn'
    log[level](
      { domain, forwardsTo, failed, abandoned, oldestWaitMs },
      `the service has a new state for visitors: ${state}`,
    )
  }

  settingsOf(tunnel: UpstreamOfTunnel): UpstreamSettings {
    return this.#readOf(tunnel).settings
  }

  #readOf(tunnel: UpstreamOfTunnel): UpstreamRead {
    const read = this.#read.get(tunnel) ?? readUpstream(tunnel, this.#options.upstream)
    this.#read.set(tunnel, read)
    return read
  }
}

function readUpstream(tunnel: UpstreamOfTunnel, defaults: UpstreamDefaults): UpstreamRead {
  const { protocol, forwardsTo } = tunnel
  const target = parseForwardTarget(forwardsTo)
  if (!target) throw new Error(`${forwardsTo} is not a valid forward target`)
  const settings = settingsOf(tunnel, defaults)
  const { health, http2, proxy_protocol: proxyProtocol, verify_tls: verifyTls } = settings
  const { tls_min_version: tlsMinVersion } = settings
  const way = { carrier: carrierOf(protocol), verifyTls, tlsMinVersion, http2, proxyProtocol }
  const key = [forwardsTo, health, http2, proxyProtocol, verifyTls, tlsMinVersion].join(' ')
  return { target, settings, way, key }
}

function settingsOf(
  { protocol, upstream = {} }: UpstreamOfTunnel,
  defaults: UpstreamDefaults,
): UpstreamSettings {
  const health = upstream.health ?? defaults.health
  const asksHttp = health.startsWith('/')
  return {
    timeout: upstream.timeout ?? defaults.timeout,
    // A service without HTTP cannot answer for a path.
    health: protocol !== 'http' && asksHttp ? 'tcp' : health,
    http2: upstream.http2 ?? false,
    ...(upstream.proxy_protocol && { proxy_protocol: upstream.proxy_protocol }),
    verify_tls: upstream.verify_tls ?? true,
    ...(upstream.tls_min_version && { tls_min_version: upstream.tls_min_version }),
    ...(upstream.max_connections && { max_connections: upstream.max_connections }),
  }
}
