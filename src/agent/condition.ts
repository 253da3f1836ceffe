import type { TunnelState } from './tunnel-state.ts'

/** State of a tunnel for its visitors: that of its endpoint, its link and its service combined. */
export const CONDITIONS = [
  'working',
  'service_down',
  'service_slow',
  'busy',
  'slow_link',
  'opening',
  'checking',
  'offline',
  'refused',
  'unverified',
] as const
export type Condition = (typeof CONDITIONS)[number]

/** Facts that decide the condition of a tunnel. */
interface ConditionFacts {
  readonly state: TunnelState
  /** The service refuses the endpoint, also if a later try may succeed. */
  readonly isRefused: boolean
  readonly upstream: string
  /** The first check of the service is not complete. */
  readonly isUnchecked: boolean
  readonly isSlowLink: boolean
  /** The gateway has no free stream for this device. */
  readonly isSaturated: boolean
  /** The device cannot reach its own public domain, or not with a valid certificate. */
  readonly isUnverified: boolean
}

/** Visitors get an error, or wait. */
const OF_UPSTREAM: Readonly<Record<string, Condition>> = {
  down: 'service_down',
  garbage: 'service_down',
  wrong_protocol: 'service_down',
  untrusted: 'service_down',
  old_tls: 'service_down',
  slow: 'service_slow',
  busy: 'busy',
}

export function conditionOf(facts: ConditionFacts): Condition {
  const { state, upstream } = facts
  if (state === 'refused' || (state === 'waiting' && facts.isRefused)) return 'refused'
  if (state === 'opening') return facts.isSlowLink ? 'slow_link' : 'opening'
  if (state !== 'online') return 'offline'
  const ofUpstream = OF_UPSTREAM[upstream]
  if (ofUpstream) return ofUpstream
  if (facts.isSaturated) return 'busy'
  if (facts.isUnchecked) return 'checking'
  if (facts.isUnverified) return 'unverified'
  return facts.isSlowLink ? 'slow_link' : 'working'
}

const SERVING: ReadonlySet<Condition> = new Set(['working', 'slow_link', 'unverified'])

/** Whether visitors of the tunnel are served, as far as the device knows. */
export function isServing({
  state,
  condition,
}: {
  readonly state: TunnelState
  readonly condition: Condition
}): boolean {
  return state === 'online' && SERVING.has(condition)
}
