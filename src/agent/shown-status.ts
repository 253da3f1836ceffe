import type { LinkStatus } from './agent-status.ts'
import { hasSession } from './link-state.ts'
import type { TunnelStatus } from './tunnel.ts'
import type { SupervisedStatus } from './tunnel-supervisor.ts'
import type { Upstream } from './upstreams/upstream-check.ts'
import type { UpstreamSettings } from './upstreams/upstream-options.ts'
import { upstreamProblem } from './upstreams/upstream-problem.ts'

/**
 * What people see of a tunnel. The link's trouble is the trouble of every tunnel: a tunnel that
 * waits for it has its reason, and on a link that carries nothing no tunnel is online.
 */
export function shownStatus(
  own: SupervisedStatus,
  link: LinkStatus,
  upstream: Upstream,
): Omit<TunnelStatus, 'reachable' | 'upstreamSettings'> {
  const { state, since, problem, nextRetryAt } = own
  if (problem) {
    const { reason, serviceCode, remedy, detail } = problem
    return { state, since, upstream, nextRetryAt, reason, serviceCode, remedy, lastError: detail }
  }
  const isCarried = link.state === 'up' || state === 'closing'
  const isOpening = state === 'opening' && hasSession(link.state)
  if (isCarried || isOpening) return { state, since, upstream }
  const { reason, serviceCode, remedy, lastError } = link
  return {
    state: 'waiting',
    since: Math.max(since, link.since),
    upstream,
    nextRetryAt: link.nextRetryAt,
    serviceCode,
    ...(reason && { reason }),
    ...(remedy && { remedy }),
    ...(lastError && { lastError }),
  }
}

/** A tunnel that is online has no trouble of its own: what its visitors suffer from is said. */
export function withUpstreamTrouble<T extends Pick<TunnelStatus, 'state' | 'reason' | 'upstream'>>(
  status: T,
  service: string,
  settings: UpstreamSettings,
): T & Pick<TunnelStatus, 'reason' | 'remedy' | 'lastError'> {
  const problem = upstreamProblem(service, status.upstream, settings)
  if (!problem || status.state !== 'online' || status.reason) return status
  const { reason, remedy, detail } = problem
  return { ...status, reason, remedy, lastError: detail }
}
