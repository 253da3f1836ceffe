import { type ListenAddress, parseListenAddress } from '../../base/listen-address.ts'
import { HOSTED_SERVICE } from './preflight.ts'
import type { TimeSource } from './service-date.ts'

/** Who may be asked for the time, most certain first: the agent's own URL, and the service. */
export function timeSources(
  url: string | undefined,
  connectTo: ListenAddress | undefined,
  serverAddr = HOSTED_SERVICE,
): TimeSource[] {
  const host = parseListenAddress(serverAddr)?.host
  return [
    ...(url === undefined ? [] : [{ url, connectTo }]),
    ...(host ? [{ url: `http://${host}` }] : []),
  ]
}
