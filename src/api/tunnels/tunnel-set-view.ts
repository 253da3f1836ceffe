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
      url: z
        .string()
        .optional()
        .describe('as a list shows it; it says nothing that domain does not'),
    }),
  )
  .describe('all tunnels that the device shall have')

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
  domain: z.string().describe('empty for a tcp tunnel that has no address yet'),
  changes: z
    .record(z.string(), z.union([z.array(z.unknown()).readonly(), z.literal('changed')]))
    .describe('before and after of each field that differs; of a policy only that it does'),
  url: z.string().nullable().describe('null where there is no tunnel: deleted, or not created yet'),
  state: TunnelStatusView.shape.state.nullable(),
  ...problemFields,
})

/** What became, or would become, of the tunnels of a device. */
export const TunnelSetView = z.strictObject({
  dry_run: z.boolean(),
  etag: z.string().describe('of the tunnels as they are now; for If-Match'),
  tunnels: z.array(SetStepView).describe('in the order of the request, then those that go'),
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
