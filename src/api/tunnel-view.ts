import type { JsonObject, Tunnel } from '../agent/tunnel.ts'
import { isoTime, isoTimeOrNull } from './iso-time.ts'

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
export interface TunnelStatusView extends TunnelView {
  readonly id: string
  /** What `/tunnels/{url_part}` takes. */
  readonly url_part: string
  readonly state: string
  readonly since: string
  readonly reason: string | null
  readonly remedy: string | null
  readonly last_error: string | null
  readonly service_code: string | null
  readonly next_retry_at: string | null
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
    reason: status.reason ?? null,
    remedy: status.remedy ?? null,
    last_error: status.lastError ?? null,
    service_code: status.serviceCode ?? null,
    next_retry_at: isoTimeOrNull(status.nextRetryAt),
    upstream: status.upstream,
    created_at: isoTime(tunnel.createdAt),
    updated_at: isoTime(tunnel.updatedAt),
  }
}
