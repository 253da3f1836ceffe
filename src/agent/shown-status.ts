import { isDeepStrictEqual } from 'node:util'
import { isSlow, type LinkStatus } from './agent-status.ts'
import { conditionOf } from './condition.ts'
import { withMovedTimes } from './device/steady-clock.ts'
import { hasSession } from './link-state.ts'
import { meaningOf, type Reach } from './probes/reach.ts'
import type { Reason, ShownProblem } from './problem.ts'
import type { TunnelStatus } from './tunnel.ts'
import type { SupervisedStatus } from './tunnel-supervisor.ts'
import type { Upstream } from './upstreams/upstream-check.ts'
import type { UpstreamSettings } from './upstreams/upstream-options.ts'
import { upstreamProblem } from './upstreams/upstream-state.ts'

/** Part of the link's status that tunnels show. */
type LinkOfTunnels = Pick<LinkStatus, 'state' | 'since'> & {
  readonly [Name in keyof ShownProblem]?: ShownProblem[Name] | undefined
}

/** State shared by all tunnels of a device. */
export interface Surroundings {
  readonly link: LinkOfTunnels
  readonly isSlowLink: boolean
  /** Whether the link leads to the hosted service. */
  readonly isHosted: boolean
  /** Result of the device's own probe. */
  readonly reach: Reach
  /** Change of the device's clock, see `SteadyClock`. */
  readonly movedMs: number
}

/** Returns a function that returns the same object until its content has changed. */
export function surroundings(
  look: () => Pick<Surroundings, 'reach' | 'movedMs'> & { readonly link: LinkStatus },
): () => Surroundings {
  let seen: Surroundings | undefined
  return () => {
    const { link, reach, movedMs } = look()
    const { state, since, nextRetryAt, reason, serviceCode, remedy, lastError } = link
    const shown = { state, since, nextRetryAt, reason, serviceCode, remedy, lastError }
    const isSlowLink = isSlow(link)
    const isHosted = link.serverAddr === undefined
    const moved = withMovedTimes(shown, movedMs)
    const now: Surroundings = { link: moved, isSlowLink, isHosted, reach, movedMs }
    if (!seen || !isDeepStrictEqual(seen, now)) seen = now
    return seen
  }
}

type OwnPart = Omit<TunnelStatus, 'condition' | 'conditionSince' | 'reachable' | 'upstreamSettings'>

/**
 * Returns the status of a tunnel for display. A problem of the link is a problem of every tunnel: a waiting
 * tunnel shows its reason. While the link carries no traffic, no tunnel is online.
 */
export function shownStatus(
  own: SupervisedStatus,
  link: LinkOfTunnels,
  upstream: Upstream,
): OwnPart {
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

type OfUpstream = Pick<TunnelStatus, 'state' | 'reason' | 'upstream' | 'upstreamFlaw' | 'visitors'>

/** Adds a problem of the upstream to the status of an online tunnel without another problem. */
export function withUpstreamTrouble<T extends OfUpstream>(
  status: T,
  service: string,
  settings: UpstreamSettings,
): T & Pick<TunnelStatus, 'reason' | 'remedy' | 'lastError'> {
  const problem = upstreamProblem(service, status.upstream, settings, status)
  if (!problem || status.state !== 'online' || status.reason) return status
  const { reason, remedy, detail } = problem
  return { ...status, reason, remedy, lastError: detail }
}

/** The service refused the endpoint for one of these reasons, for now or permanently. */
const REFUSALS: ReadonlySet<Reason | undefined> = new Set(['acl', 'conflict', 'policy', 'limit'])

/** Adds the results that all tunnels of a device share. */
export function withSurroundings<T extends OwnPart & Pick<TunnelStatus, 'upstreamSettings'>>(
  status: T,
  { isSlowLink, reach }: Pick<Surroundings, 'isSlowLink' | 'reach'>,
): T & Pick<TunnelStatus, 'condition' | 'reachable'> {
  const { shown } = meaningOf(reach)
  const isSaturated = reach.name === 'busy'
  const condition = conditionOf({
    ...status,
    isRefused: REFUSALS.has(status.reason),
    isUnchecked: status.upstream === 'unknown' && status.upstreamSettings.health !== 'off',
    isSlowLink,
    isSaturated,
    isUnverified: !isSaturated && (shown === 'unverified' || shown === 'no'),
  })
  return { ...status, condition, reachable: shown }
}
