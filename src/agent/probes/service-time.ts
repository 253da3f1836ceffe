import type { Clock } from '../../base/clock.ts'
import { type ListenAddress, parseListenAddress } from '../../base/listen-address.ts'
import { requestPublic } from './public-request.ts'

/** Where the SDK connects by default. */
export const HOSTED_SERVICE = 'connect.ngrok-agent.com:443'

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

/** Clocks that agree this well are not to blame for a certificate. */
export const CLOCK_TOLERANCE_MS = 60_000

/** What time it is for the service, by its last answer and the clock that never jumps. */
export class ServiceTime {
  readonly #clock: Clock
  /** The service's date minus our monotonic clock. */
  #offsetMs: number | undefined

  constructor(clock: Clock) {
    this.#clock = clock
  }

  /** The `Date` of an answer that has just come, milliseconds since the epoch. */
  note(date: number): void {
    this.#offsetMs = date - this.#clock.monotonic()
  }

  get now(): number | undefined {
    return this.#offsetMs === undefined ? undefined : this.#offsetMs + this.#clock.monotonic()
  }

  /** Our wall clock minus the service's, to the second; right also just after ours was set. */
  get skewMs(): number | undefined {
    const { now } = this
    if (now === undefined) return undefined
    // A date has whole seconds: it was up to one more there.
    return Math.floor((this.#clock.now() - now) / 1_000) * 1_000
  }
}
