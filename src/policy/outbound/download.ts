import { OutboundError, send } from './outbound.ts'
import type { PolicyReach } from './policy-reach.ts'

const MAX_BYTES = 262_144
const TIMEOUT_MS = 5_000

/** What a server publishes, at most 256 KiB within 5 s. Throws OutboundError; `what` stands in its text. */
export async function download(
  url: URL,
  reach: PolicyReach,
  { what, accept }: { readonly what: string; readonly accept: string },
): Promise<Buffer> {
  const headers = { accept, 'user-agent': 'device-agent-gateway' }
  const signal = AbortSignal.timeout(TIMEOUT_MS)
  const request = { url, method: 'GET', headers, maxBytes: MAX_BYTES, signal }
  const { status, body } = await send(request, reach)
  if (status === 200) return body
  throw new OutboundError('ERR_NGROK_3422', `${what} answered ${status}.`)
}
