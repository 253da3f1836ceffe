import { requestPublic } from './public-request.ts'

const DEADLINE_MS = 3_000

/**
 * What time the service says it is, by the `Date` of the first URL that answers. Certificates are
 * not looked at: the answer explains an error, it never sets a clock.
 */
export async function readServiceDate(
  urls: readonly string[],
  signal: AbortSignal,
): Promise<number | undefined> {
  for (const url of urls) {
    try {
      const options = { method: 'HEAD', verify: false, deadlineMs: DEADLINE_MS, signal } as const
      const { date } = await requestPublic(new URL(url), options)
      if (date !== undefined) return date
    } catch {
      signal.throwIfAborted()
    }
  }
  return undefined
}
