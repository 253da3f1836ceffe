import type { Clock } from '../../base/clock.ts'
import {
  formatListenAddress,
  type ListenAddress,
  parseListenAddress,
} from '../../base/listen-address.ts'
import { requestPublic } from './public-request.ts'

/** Default address of the SDK. */
export const HOSTED_SERVICE = 'connect.ngrok-agent.com:443'

/** Sources for the time, most reliable first: the agent's own URL, else the ingress, then the service. */
export function timeSources(
  url: string | undefined,
  connectTo: ListenAddress | undefined,
  serverAddr = HOSTED_SERVICE,
): TimeSource[] {
  const host = parseListenAddress(serverAddr)?.host
  const ingress = connectTo && { url: `https://${formatListenAddress(connectTo)}`, connectTo }
  return [
    ...(url === undefined ? [] : [{ url, connectTo }]),
    ...(url === undefined && ingress ? [ingress] : []),
    ...(host ? [{ url: `http://${host}` }] : []),
  ]
}

/** Time limit per source. */
const DEADLINE_MS = 3_000

/** A source for the time. `connectTo`: address to use instead of DNS. */
export interface TimeSource {
  readonly url: string
  readonly connectTo?: ListenAddress | undefined
}

/** Returns the end of the validity of a URL's certificate. Throws like `requestPublic`. */
export async function readCertificateEnd(
  url: URL,
  connectTo: ListenAddress | undefined,
  signal: AbortSignal,
): Promise<number | undefined> {
  const way = { method: 'HEAD', verify: false, connectTo, deadlineMs: DEADLINE_MS, signal } as const
  return (await requestPublic(url, way)).validTo
}

/**
 * Returns the time of the service from the first `Date` header received. Certificates are not checked,
 * because the result only explains errors and never sets a clock.
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

/** With a smaller difference, clocks are not the reason for a rejected certificate. */
export const CLOCK_TOLERANCE_MS = 60_000

/** Time of the service, from its last answer and the monotonic clock. */
export class ServiceTime {
  readonly #clock: Clock
  /** Date of the service minus our monotonic clock. */
  #offsetMs: number | undefined

  constructor(clock: Clock) {
    this.#clock = clock
  }

  /** Takes the `Date` of an answer just received, in milliseconds since the epoch. */
  note(date: number): void {
    this.#offsetMs = date - this.#clock.monotonic()
  }

  get now(): number | undefined {
    return this.#offsetMs === undefined ? undefined : this.#offsetMs + this.#clock.monotonic()
  }

  /**
   * Wall clock of this device minus that of the service, in whole seconds. Also correct just after the clock
   * was set.
   */
  get skewMs(): number | undefined {
    const { now } = this
    if (now === undefined) return undefined
    // A `Date` has whole seconds, so the real time was up to one second later.
    return Math.floor((this.#clock.now() - now) / 1_000) * 1_000
  }
}
