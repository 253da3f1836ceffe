import type { JsonObject, Tunnel } from '../agent/tunnel.ts'
import { isoTime } from './iso-time.ts'
import { type ProblemView, problemView } from './problem-view.ts'

/** The five fields of a tunnel that every client sees. */
export interface TunnelView {
  readonly url: string
  readonly protocol: string
  readonly forwards_to: string
  readonly domain: string
  /** In the answer to a create: as it was sent, or null. In a list: the policy in force, as JSON text. */
  readonly policy: JsonObject | string | null
}

/** The same with what is true of the tunnel now. Times are ISO 8601, UTC. */
export interface TunnelStatusView extends TunnelView, ProblemView {
  readonly id: string
  /** What `/tunnels/{url_part}` takes. */
  readonly url_part: string
  readonly state: string
  readonly since: string
  readonly upstream: string
  readonly created_at: string
  readonly updated_at: string
}

export function tunnelView({ url, spec }: Tunnel, policy: TunnelView['policy']): TunnelView {
  const { protocol, forwardsTo, domain } = spec
  return { url, protocol, forwards_to: forwardsTo, domain, policy }
}

export function tunnelStatusView(tunnel: Tunnel, inForce: JsonObject): TunnelStatusView {
  const { status } = tunnel
  return {
    ...tunnelView(tunnel, JSON.stringify(inForce)),
    id: tunnel.id,
    url_part: tunnel.spec.domain,
    state: status.state,
    since: isoTime(status.since),
    ...problemView(status),
    upstream: status.upstream,
    created_at: isoTime(tunnel.createdAt),
    updated_at: isoTime(tunnel.updatedAt),
  }
}
