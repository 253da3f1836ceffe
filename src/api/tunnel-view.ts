import * as z from 'zod'
import { CONDITIONS } from '../agent/condition.ts'
import { type JsonObject, PolicyObject, type Tunnel } from '../agent/tunnel.ts'
import { TLS_MIN_VERSIONS, UpstreamOptionsSchema } from '../agent/upstreams/upstream-options.ts'
import type { VisitorReport } from '../agent/upstreams/upstream-state.ts'
import { IsoTime, isoTime } from './iso-time.ts'
import { problemFields, problemView } from './problem-view.ts'

/** The five fields of a tunnel that every client sees (spec 2.6). */
export const TunnelView = z.strictObject({
  url: z.string(),
  protocol: z.string(),
  forwards_to: z.string(),
  domain: z.string(),
  policy: z
    .union([PolicyObject, z.string(), z.null()])
    .describe('after a create: as sent, or null; in a list: the active policy as JSON text'),
})
export type TunnelView = z.infer<typeof TunnelView>

/** The wanted tunnel, in the format that `PUT /tunnels` accepts. */
export const TunnelSpecView = z.strictObject({
  protocol: z.string(),
  forwards_to: z.string(),
  domain: z.string().describe('empty until the gateway has given a name or an address'),
  policy: PolicyObject.nullable().describe('null: the default policy of the device'),
  upstream: UpstreamOptionsSchema.optional(),
  pooling_enabled: z.boolean().optional(),
})
export type TunnelSpecView = z.infer<typeof TunnelSpecView>

export const ReachableView = z
  .enum(['yes', 'no', 'unverified', 'unknown'])
  .describe(
    'whether the device can reach its own public domain; unverified: it cannot, but the link works',
  )

/** The wanted tunnel with its current status. */
export const TunnelStatusView = TunnelView.extend({
  id: z.string(),
  url_part: z.string().describe('value for /tunnels/{url_part}'),
  state: z.enum(['opening', 'online', 'waiting', 'refused', 'closing']),
  condition: z
    .enum(CONDITIONS)
    .describe('combined state for visitors: endpoint, link and upstream'),
  // Optional for commands that are newer than the running agent.
  condition_since: IsoTime.optional().describe('time since which the condition lasts'),
  since: IsoTime,
  ...problemFields,
  reachable: ReachableView,
  upstream: z
    .enum([
      'up',
      'down',
      'slow',
      'busy',
      'garbage',
      'wrong_protocol',
      'untrusted',
      'old_tls',
      'unknown',
    ])
    .describe('state of the upstream, from health checks and from responses to visitors'),
  upstream_settings: z
    .strictObject({
      timeout: z.number(),
      health: z.string(),
      http2: z.boolean(),
      proxy_protocol: z.literal([1, 2]).optional(),
      verify_tls: z.boolean(),
      tls_min_version: z.enum(TLS_MIN_VERSIONS).optional(),
      max_connections: z.number().optional(),
    })
    .describe('upstream options in effect, from the tunnel or the settings'),
  pooling_enabled: z
    .boolean()
    .describe('whether other devices of the account can share the address'),
  visitors: z
    .strictObject({
      state: z.enum(['answered', 'slow', 'busy', 'garbage', 'unreachable']),
      answered: z.number(),
      abandoned: z.number(),
      failed: z.number(),
      oldest_wait_ms: z.number(),
      busy: z
        .strictObject({
          connections: z.number().describe('open connections, as many as the upstream accepts'),
          streams: z.number().describe('of these, with an open-ended stream such as a WebSocket'),
          waiting: z.number().describe('requests that wait for a connection'),
        })
        .optional()
        .describe('only if the state is busy'),
    })
    .nullable()
    .describe(
      'responses to visitors since the last change, reported by the gateway; null if unavailable',
    ),
  policy_warning: z
    .string()
    .nullable()
    .describe('why the gateway refuses a new policy like this one, which runs as before'),
  created_at: IsoTime,
  updated_at: IsoTime,
})
export type TunnelStatusView = z.infer<typeof TunnelStatusView>

export function tunnelView({ url, spec }: Tunnel, policy: TunnelView['policy']): TunnelView {
  const { protocol, forwardsTo, domain } = spec
  return { url, protocol, forwards_to: forwardsTo, domain, policy }
}

export function tunnelSpecView({ spec }: Tunnel): TunnelSpecView {
  const { protocol, forwardsTo, domain, policy, upstream, isPooled } = spec
  return {
    protocol,
    forwards_to: forwardsTo,
    domain,
    policy,
    ...(upstream && { upstream }),
    ...(isPooled && { pooling_enabled: true }),
  }
}

function visitorsView(report: VisitorReport): TunnelStatusView['visitors'] {
  const { oldestWaitMs, busy, ...counts } = report
  return { ...counts, oldest_wait_ms: oldestWaitMs, ...(busy && { busy }) }
}

export function tunnelStatusView(tunnel: Tunnel, inForce: JsonObject): TunnelStatusView {
  const { status } = tunnel
  return {
    ...tunnelView(tunnel, JSON.stringify(inForce)),
    id: tunnel.id,
    url_part: tunnel.spec.domain || tunnel.id,
    state: status.state,
    condition: status.condition,
    condition_since: isoTime(status.conditionSince),
    since: isoTime(status.since),
    ...problemView(status),
    reachable: status.reachable,
    upstream: status.upstream,
    upstream_settings: status.upstreamSettings,
    pooling_enabled: tunnel.spec.isPooled === true,
    visitors: status.visitors ? visitorsView(status.visitors) : null,
    policy_warning: status.policyWarning ?? null,
    created_at: isoTime(tunnel.createdAt),
    updated_at: isoTime(tunnel.updatedAt),
  }
}
