import type { Logger } from '../../base/logger.ts'
import { ProblemError } from '../problem.ts'
import type { ForwardRules } from './forward-rules.ts'
import { type ForwardTarget, parseForwardTarget } from './forward-target.ts'
import { carrierOf, type TunnelProtocol } from './tunnel-protocol.ts'
import type { UpstreamCheck } from './upstream-check.ts'
import type { UpstreamDialer } from './upstream-dialer.ts'
import type { UpstreamDefaults, UpstreamOptions, UpstreamSettings } from './upstream-options.ts'
import type { Upstream } from './upstream-state.ts'
import { eventOf, timeoutNotice, type VisitorReport } from './visitor-report.ts'

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
  /** Normal form: `localhost:8001`, `[::1]:8001`. */
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

/** The services behind tunnels: whether they may be reached, how they are asked, how they do. */
export class TunnelUpstreams {
  readonly #options: TunnelUpstreamsOptions

  constructor(options: TunnelUpstreamsOptions) {
    this.#options = options
  }

  /** Throws AppError `forwards-to-not-allowed`. */
  async requireAllowed(tunnel: UpstreamOfTunnel): Promise<void> {
    await this.#options.rules.check(targetOf(tunnel))
  }

  /** Throws ProblemError `upstream` where it is not allowed any more. */
  async endpointOf(tunnel: UpstreamOfTunnel): Promise<UpstreamOfEndpoint> {
    const { rules, dialer } = this.#options
    const target = targetOf(tunnel)
    await rules.check(target).catch((error) => {
      throw new ProblemError({
        reason: 'upstream',
        detail: error.message,
        remedy: 'Forward to an allowed address, or list this one in AGENT_FORWARD_ALLOW.',
        permanent: true,
      })
    })
    const { timeout, http2 } = this.settingsOf(tunnel)
    const dialUrl = await dialer.dialUrl(target, carrierOf(tunnel.protocol))
    return { dialUrl, http2, metadata: timeoutNotice(timeout) }
  }

  /** Looks after the service until the returned function is called. */
  watch(tunnel: UpstreamOfTunnel): () => void {
    const { upstreams, dialer } = this.#options
    const target = targetOf(tunnel)
    const unwatch = upstreams.watch(this.#keyOf(tunnel), target, this.settingsOf(tunnel))
    const letGo = dialer.hold(target, carrierOf(tunnel.protocol))
    return () => {
      unwatch()
      letGo()
    }
  }

  stateOf(tunnel: UpstreamOfTunnel): Upstream {
    return this.#options.upstreams.stateOf(this.#keyOf(tunnel))
  }

  /** What visitors got of it; each change is logged once: one that fails for a week must not fill the disk. */
  told(tunnel: UpstreamOfTunnel, report: VisitorReport, before: VisitorReport | undefined): void {
    const { upstreams, log } = this.#options
    upstreams.told(this.#keyOf(tunnel), eventOf(report))
    const { state, failed, abandoned, oldestWaitMs } = report
    if (state === before?.state) return
    const { domain, forwardsTo } = tunnel
    const level = state === 'answered' ? 'info' : 'warn'
    log[level]({ domain, forwardsTo, failed, abandoned, oldestWaitMs }, `visitors: ${state}`)
  }

  settingsOf({ protocol, upstream = {} }: UpstreamOfTunnel): UpstreamSettings {
    const given = this.#options.upstream
    const health = upstream.health ?? given.health
    const asksHttp = health.startsWith('/')
    return {
      timeout: upstream.timeout ?? given.timeout,
      // What speaks no HTTP answers for no path.
      health: protocol !== 'http' && asksHttp ? 'tcp' : health,
      http2: upstream.http2 ?? false,
      ...(upstream.proxy_protocol && { proxy_protocol: upstream.proxy_protocol }),
    }
  }

  /** Tunnels to one service that ask it in the same way ask it once. */
  #keyOf(tunnel: UpstreamOfTunnel): string {
    const { health, http2, proxy_protocol: version = '' } = this.settingsOf(tunnel)
    return `${tunnel.forwardsTo} ${health} ${http2} ${version}`
  }
}

function targetOf({ forwardsTo }: UpstreamOfTunnel): ForwardTarget {
  const target = parseForwardTarget(forwardsTo)
  if (!target) throw new Error(`${forwardsTo} is no forward target`)
  return target
}
