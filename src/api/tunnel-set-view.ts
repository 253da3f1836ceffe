import { createHash } from 'node:crypto'
import * as z from 'zod'
import {
  isJsonObject,
  type Tunnel,
  TunnelBody,
  type TunnelSpec,
  TunnelSpecSchema,
} from '../agent/tunnel.ts'
import type { SetOutcome } from '../agent/tunnel-set.ts'
import { type AuditedChange, type FieldChanges, fieldChanges } from '../base/audit.ts'
import { parse } from '../http/parse.ts'
import { problemFields, problemView } from './problem-view.ts'
import { TunnelStatusView } from './tunnel-view.ts'

interface Specified {
  readonly spec: TunnelSpec
}

/**
 * ETags cover the wanted tunnel, not its status. They change when a tunnel is edited, and stay when it goes
 * offline.
 */
export function tunnelEtag({ spec }: Specified): string {
  return etagOf(wantedText(spec))
}

/** ETag of all tunnels, independent of their order. */
export function setEtag(tunnels: readonly Specified[]): string {
  const texts = tunnels.map(({ spec }) => wantedText(spec))
  return etagOf(`[${texts.sort().join(',')}]`)
}

function wantedText(spec: TunnelSpec): string {
  const { protocol, domain, forwardsTo, policy, upstream, isPooled } = spec
  return JSON.stringify([protocol, domain, forwardsTo, policy, upstream ?? null, isPooled === true])
}

function etagOf(text: string): string {
  return `"${createHash('sha256').update(text).digest('hex').slice(0, 32)}"`
}

/** Audit entry of a tunnel. It says only that a policy or path changed: both may contain passwords. */
export function about(
  id: Tunnel['id'],
  before: TunnelSpec | undefined,
  after: TunnelSpec | undefined,
): Partial<AuditedChange> {
  return { targetId: id, targetName: (after ?? before)?.domain, changes: changesOf(before, after) }
}

/** The fields that differ, as the trail and a plan show them. */
function changesOf(before: TunnelSpec | undefined, after: TunnelSpec | undefined): FieldChanges {
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

/** As many as AGENT_MAX_TUNNELS may be. */
const MAX_ITEMS = 10_000

/** Body of `PUT /tunnels`. */
export const TunnelSetBody = z
  .array(
    TunnelBody.partial({ domain: true }).extend({
      url: z.string().optional().describe('as in the list; redundant with domain'),
    }),
  )
  .describe('all tunnels of the device')

const AnyList = z.array(z.unknown()).max(MAX_ITEMS, `must have at most ${MAX_ITEMS} tunnels`)
const Items = z.array(z.preprocess(withoutUrl, TunnelSpecSchema))

/** Throws AppError `invalid-request`, which names each bad field as `/2/domain`. */
export function readTunnelSet(body: unknown): TunnelSpec[] {
  return parse(Items, parse(AnyList, body))
}

/** Accepts the output of a list as input. */
function withoutUrl(item: unknown): unknown {
  if (!isJsonObject(item)) return item
  const { url, ...rest } = item
  return typeof url === 'string' || url === undefined ? rest : item
}

const SetStepView = z.strictObject({
  action: z.enum(['create', 'replace', 'keep', 'delete']),
  domain: z.string().describe('empty until the gateway has given a name or an address'),
  changes: z
    .record(z.string(), z.union([z.array(z.unknown()).readonly(), z.literal('changed')]))
    .describe('old and new value of each changed field; "changed" for a policy'),
  url: z.string().nullable().describe('null if the tunnel is deleted or not created yet'),
  state: TunnelStatusView.shape.state.nullable(),
  ...problemFields,
})

/** Applied or planned changes of the tunnels of a device. */
export const TunnelSetView = z.strictObject({
  dry_run: z.boolean(),
  etag: z.string().describe('version of the current tunnels, for If-Match'),
  tunnels: z.array(SetStepView).describe('in the order of the request, then deleted tunnels'),
})
export type TunnelSetView = z.infer<typeof TunnelSetView>

export function setView(outcomes: readonly SetOutcome[], isDryRun: boolean): TunnelSetView {
  const now = outcomes.flatMap(({ step: { before, after }, tunnel }) => {
    if (isDryRun) return before ?? []
    return tunnel ?? after ?? []
  })
  return {
    dry_run: isDryRun,
    etag: setEtag(now),
    tunnels: outcomes.map(({ step: { action, before, after }, tunnel }) => ({
      action,
      domain: (tunnel ?? after ?? before)?.spec.domain ?? '',
      changes: changesOf(before?.spec, after?.spec),
      url: tunnel?.url ?? null,
      state: tunnel?.status.state ?? null,
      ...problemView(tunnel?.status ?? {}),
    })),
  }
}
