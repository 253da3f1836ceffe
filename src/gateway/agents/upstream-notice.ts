import * as z from 'zod'

/** Nobody waits longer for the begin of an answer. */
const MAX_SECONDS = 3_600

const UpstreamNotice = z.object({
  'device-agent': z.object({
    upstream: z.object({ timeout_s: z.number().int().min(1).max(MAX_SECONDS) }),
  }),
})

/**
 * How long the service behind an endpoint may take to begin an answer, from the metadata of its bind:
 * `{"device-agent":{"upstream":{"timeout_s":60}}}`. Undefined where nothing of that kind is said.
 */
export function answerMsIn(metadata: string): number | undefined {
  try {
    const { data } = UpstreamNotice.safeParse(JSON.parse(metadata))
    return data && data['device-agent'].upstream.timeout_s * 1_000
  } catch {
    return undefined
  }
}
