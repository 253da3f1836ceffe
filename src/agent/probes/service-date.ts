import type { ListenAddress } from '../../base/listen-address.ts'
import { requestPublic } from './public-request.ts'

const DEADLINE_MS = 3_000

/** Who may know the time, and where to connect when not to what the name resolves to. */
export interface TimeSource {
  readonly url: string
  readonly connectTo?: ListenAddress | undefined
}

/** Until when the certificate of a URL is good. Throws as `requestPublic` does. */
export async function readCertificateEnd(
  url: URL,
  connectTo: ListenAddress | undefined,
  signal: AbortSignal,
): Promise<number | undefined> {
  const way = { method: 'HEAD', verify: false, connectTo, deadlineMs: DEADLINE_MS, signal } as const
  return (await requestPublic(url, way)).validTo
}

/**
 * What time the service says it is, by the `Date` of the first that answers. Certificates are
 * not looked at: the answer explains an error, it never sets a clock.
 */
export async function readServiceDate(
  sources: readonly TimeSource[],
  signal: AbortSignal,
): Promise<number | undefined> {
  for (const { url, connectTo } of sources) {
    try {
      const { date } = await requestPublic(new URL(url), {
        method: 'HEAD',
        verify: false,
        connectTo,
        deadlineMs: DEADLINE_MS,
        signal,
      })
      if (date !== undefined) return date
    } catch {
      signal.throwIfAborted()
    }
  }
  return undefined
}
