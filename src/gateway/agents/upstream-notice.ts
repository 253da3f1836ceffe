import * as z from 'zod'
import type { ProxyProtocol } from '../../base/net/proxy-protocol.ts'

/** Nobody waits longer for the begin of an answer. */
const MAX_SECONDS = 3_600

const Notice = z.object({
  'device-agent': z.object({
    upstream: z.object({
      timeout_s: z.number().int().min(1).max(MAX_SECONDS).optional(),
      proxy_protocol: z.literal([1, 2]).optional(),
      max_connections: z.number().int().min(1).optional(),
    }),
  }),
})

/** What an agent of ours says of the service behind an endpoint. */
export interface UpstreamNotice {
  /** How long it may take to begin an answer. */
  readonly answerMs: number | undefined
  /** Each connection begins with this version of the PROXY header, of which the SDK knows nothing. */
  readonly proxyProtocol: ProxyProtocol | undefined
  /** How many connections the service takes at once. */
  readonly maxConnections: number | undefined
}

/**
 * Reads it from the metadata of a bind: `{"device-agent":{"upstream":{"timeout_s":60,"proxy_protocol":2}}}`.
 * Undefined where nothing of that kind is said.
 */
export function upstreamNoticeIn(metadata: string): UpstreamNotice | undefined {
  // Most have none, and what is no JSON is an error with a stack.
  if (!metadata.includes('"device-agent"')) return undefined
  try {
    const { data } = Notice.safeParse(JSON.parse(metadata))
    if (!data) return undefined
    const { upstream } = data['device-agent']
    const { timeout_s: seconds, proxy_protocol: proxyProtocol } = upstream
    const { max_connections: maxConnections } = upstream
    return { answerMs: seconds && seconds * 1_000, proxyProtocol, maxConnections }
  } catch {
    return undefined
  }
}
