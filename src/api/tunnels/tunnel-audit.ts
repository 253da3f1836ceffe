import type { Tunnel, TunnelSpec } from '../../agent/tunnel.ts'
import { type AuditedChange, type FieldChanges, fieldChanges } from '../../base/audit.ts'

/** What the audit trail says of a tunnel. Policies hold passwords, and paths may: that they changed. */
export function about(
  id: Tunnel['id'],
  before: TunnelSpec | undefined,
  after: TunnelSpec | undefined,
): Partial<AuditedChange> {
  return { targetId: id, targetName: (after ?? before)?.domain, changes: changesOf(before, after) }
}

/** The fields that differ, as the trail and a plan show them. */
export function changesOf(
  before: TunnelSpec | undefined,
  after: TunnelSpec | undefined,
): FieldChanges {
  return fieldChanges(shown(before), shown(after), OPEN_FIELDS)
}

const OPEN_FIELDS = new Set([
  'protocol',
  'forwards_to',
  'upstream.timeout',
  'upstream.http2',
  'upstream.proxy_protocol',
  'upstream.verify_tls',
  'upstream.tls_min_version',
  'upstream.max_connections',
  'pooling_enabled',
])

function shown(spec: TunnelSpec | undefined): Readonly<Record<string, unknown>> {
  if (!spec) return {}
  const { protocol, forwardsTo, policy, upstream, isPooled } = spec
  return {
    protocol,
    forwards_to: forwardsTo,
    policy,
    'upstream.timeout': upstream?.timeout,
    'upstream.health': upstream?.health,
    'upstream.http2': upstream?.http2,
    'upstream.proxy_protocol': upstream?.proxy_protocol,
    'upstream.verify_tls': upstream?.verify_tls,
    'upstream.tls_min_version': upstream?.tls_min_version,
    'upstream.max_connections': upstream?.max_connections,
    pooling_enabled: isPooled,
  }
}
