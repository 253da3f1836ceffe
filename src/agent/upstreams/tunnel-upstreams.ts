import type { Logger } from '../../base/logger.ts'
import { ProblemError } from '../problem.ts'
import type { ForwardRules } from './forward-rules.ts'
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
import { eventOf, type Upstream, type VisitorReport } from './upstream-state.ts'

/**
 * What our gateway is asked for beside an endpoint: so long for the begin of an answer, so many
 * connections at once, and where bytes are passed on as they come the PROXY header. Undefined where it does that by itself.
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
  /** For tunnels that say nothing else. */
  readonly upstream: UpstreamDefaults
  readonly log: Logger
}

/** What a tunnel says of the service behind it. */
export interface UpstreamOfTunnel {
  readonly protocol: TunnelProtocol
  /** Normal form, see `formatForwardTarget`. */
  readonly forwardsTo: string
  readonly domain: string
  readonly upstream?: UpstreamOptions | undefined
}

/** What an endpoint needs to know of it. */
export interface UpstreamOfEndpoint {
  /** What the SDK is to dial. */
  readonly dialUrl: string
  readonly http2: boolean
  /** For our gateway, beside the endpoint. */
  readonly metadata: string | undefined
}

/** What comes of what a tunnel says. */
interface UpstreamRead {
  readonly target: ForwardTarget
  readonly settings: UpstreamSettings
  readonly way: WayToUpstream
  /** Tunnels to one service that ask it in the same way ask it once. */
  readonly key: string
}

/** The services behind tunnels: whether they may be reached, how they are asked, how they do. */
export class TunnelUpstreams {
  readonly #options: TunnelUpstreamsOptions
  /** A tunnel never says anything else, and is asked at every look at its status. */
  readonly #read = new WeakMap<UpstreamOfTunnel, UpstreamRead>()

  constructor(options: TunnelUpstreamsOptions) {
    this.#options = options
  }

  /** Throws AppError `forwards-to-not-allowed`. */
  async requireAllowed(tunnel: UpstreamOfTunnel): Promise<void> {
    await this.#options.rules.check(this.#readOf(tunnel).target)
  }

  /** Throws ProblemError `upstream` where it is not allowed any more. */
  async endpointOf(tunnel: UpstreamOfTunnel): Promise<UpstreamOfEndpoint> {
    const { rules, dialer } = this.#options
    const { target, settings, way } = this.#readOf(tunnel)
    await rules.check(target).catch((error) => {
      throw new ProblemError({
        reason: 'upstream',
        detail: error.message,
        remedy: 'Forward to an allowed address, or add this address to AGENT_FORWARD_ALLOW.',
        permanent: true,
      })
    })
    const dialUrl = await dialer.dialUrl(target, way)
    const metadata = upstreamNotice(tunnel.protocol, settings)
    return { dialUrl, http2: settings.http2, metadata }
  }

  /** Looks after the service until the returned function is called. */
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

  /** What visitors got of it; each change is logged once: one that fails for a week must not fill the disk. */
  told(tunnel: UpstreamOfTunnel, report: VisitorReport, before: VisitorReport | undefined): void {
    const { upstreams, log } = this.#options
    upstreams.told(this.#readOf(tunnel).key, eventOf(report))
    const { state, failed, abandoned, oldestWaitMs } = report
    if (state === before?.state) return
    const { domain, forwardsTo } = tunnel
    const level = state === 'answered' ? 'info' : 'warn'
    log[level]({ domain, forwardsTo, failed, abandoned, oldestWaitMs }, `visitors: ${state}`)
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
    // What speaks no HTTP answers for no path.
    health: protocol !== 'http' && asksHttp ? 'tcp' : health,
    http2: upstream.http2 ?? false,
    ...(upstream.proxy_protocol && { proxy_protocol: upstream.proxy_protocol }),
    verify_tls: upstream.verify_tls ?? true,
    ...(upstream.tls_min_version && { tls_min_version: upstream.tls_min_version }),
    ...(upstream.max_connections && { max_connections: upstream.max_connections }),
  }
}
