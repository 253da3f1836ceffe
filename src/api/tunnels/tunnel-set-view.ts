import * as z from 'zod'
import { isJsonObject, TunnelBody, type TunnelSpec, TunnelSpecSchema } from '../../agent/tunnel.ts'
import type { SetOutcome } from '../../agent/tunnel-set.ts'
import { parse, parseAsync } from '../../http/parse.ts'
import { problemFields, problemView } from '../problem-view.ts'
import { TunnelStatusView } from '../tunnel-view.ts'
import { changesOf } from './tunnel-audit.ts'
import { setEtag } from './tunnel-etag.ts'

/** As many as AGENT_MAX_TUNNELS may be. */
const MAX_ITEMS = 10_000

/** What `PUT /tunnels` takes. */
export const TunnelSetBody = z
  .array(
    TunnelBody.partial({ domain: true }).extend({
      url: z.string().optional().describe('as in the list; redundant with domain'),
    }),
  )
  .describe('all tunnels of the device')

const AnyList = z.array(z.unknown()).max(MAX_ITEMS, `must have at most ${MAX_ITEMS} tunnels`)
const Items = z.array(z.preprocess(withoutUrl, TunnelSpecSchema))

/** Rejects with AppError `invalid-request`, which names each bad field as `/2/domain`. */
export function readTunnelSet(body: unknown): Promise<TunnelSpec[]> {
  return parseAsync(Items, parse(AnyList, body))
}

/** What a list shows can be sent back. */
function withoutUrl(item: unknown): unknown {
  if (!isJsonObject(item)) return item
  const { url, ...rest } = item
  return typeof url === 'string' || url === undefined ? rest : item
}

const SetStepView = z.strictObject({
  action: z.enum(['create', 'replace', 'keep', 'delete']),
  domain: z.string().describe('empty for a tcp tunnel without an address'),
  changes: z
    .record(z.string(), z.union([z.array(z.unknown()).readonly(), z.literal('changed')]))
    .describe('old and new value of each changed field; "changed" for a policy'),
  url: z.string().nullable().describe('null if the tunnel is deleted or not created yet'),
  state: TunnelStatusView.shape.state.nullable(),
  ...problemFields,
})

/** What became, or would become, of the tunnels of a device. */
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
