import { isDeepStrictEqual } from 'node:util'
import type { LinkStatus } from './agent-status.ts'
import { withMovedTimes } from './device/steady-clock.ts'
import { hasSession } from './link-state.ts'
import type { Reachable } from './probes/reach.ts'
import type { ShownProblem } from './problem.ts'
import type { TunnelStatus } from './tunnel.ts'
import type { SupervisedStatus } from './tunnel-supervisor.ts'
import type { Upstream } from './upstreams/upstream-check.ts'
import type { UpstreamSettings } from './upstreams/upstream-options.ts'
import { type UpstreamLoad, upstreamProblem } from './upstreams/upstream-state.ts'

/** Part of the link's status that tunnels show. */
type LinkOfTunnels = Pick<LinkStatus, 'state' | 'since'> & {
  readonly [Name in keyof ShownProblem]?: ShownProblem[Name] | undefined
}

/** State shared by all tunnels of a device. */
export interface Surroundings {
  readonly link: LinkOfTunnels
  /** Result of the device's own probe. */
  readonly reachable: Reachable
  /** Change of the device's clock, see `SteadyClock`. */
  readonly movedMs: number
}

/** Returns a function that returns the same object until its content has changed. */
export function surroundings(
  look: () => Omit<Surroundings, 'link'> & { readonly link: LinkStatus },
): () => Surroundings {
  let seen: Surroundings | undefined
  return () => {
    const { link, reachable, movedMs } = look()
    const { state, since, nextRetryAt, reason, serviceCode, remedy, lastError } = link
    const shown = { state, since, nextRetryAt, reason, serviceCode, remedy, lastError }
    const now: Surroundings = { link: withMovedTimes(shown, movedMs), reachable, movedMs }
    if (!seen || !isDeepStrictEqual(seen, now)) seen = now
    return seen
  }
}

/**
 * Returns the status of a tunnel for display. A problem of the link is a problem of every tunnel: a waiting
 * tunnel shows its reason. While the link carries no traffic, no tunnel is online.
 */
export function shownStatus(
  own: SupervisedStatus,
  link: LinkOfTunnels,
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

/** Adds a problem of the upstream to the status of an online tunnel without another problem. */
export function withUpstreamTrouble<T extends Pick<TunnelStatus, 'state' | 'reason' | 'upstream'>>(
  status: T,
  service: string,
  settings: UpstreamSettings,
  load?: UpstreamLoad | undefined,
): T & Pick<TunnelStatus, 'reason' | 'remedy' | 'lastError'> {
  const problem = upstreamProblem(service, status.upstream, settings, load)
  if (!problem || status.state !== 'online' || status.reason) return status
  const { reason, remedy, detail } = problem
  return { ...status, reason, remedy, lastError: detail }
}
