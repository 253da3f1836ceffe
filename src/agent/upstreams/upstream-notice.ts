import type { TunnelProtocol } from './tunnel-protocol.ts'
import { GRANTED_TIMEOUT_S, type UpstreamSettings } from './upstream-options.ts'

/**
 * What our gateway is asked for beside an endpoint: so long for the begin of an answer, so many
 * connections at once, and where bytes are passed on as they come the PROXY header. Undefined where it does that by itself.
 */
export function upstreamNotice(
  protocol: TunnelProtocol,
  { timeout, proxy_protocol, max_connections }: UpstreamSettings,
): string | undefined {
  const upstream = {
    ...(timeout !== GRANTED_TIMEOUT_S && { timeout_s: timeout }),
    ...(protocol !== 'http' && proxy_protocol && { proxy_protocol }),
    ...(max_connections && { max_connections }),
  }
  if (Object.keys(upstream).length === 0) return undefined
  return JSON.stringify({ 'device-agent': { upstream } })
}
