import type { Clock } from '../../base/clock.ts'
import type { EndpointTraffic, Session } from '../connector.ts'

/** Answers stay valid for this time. Each costs two round trips. */
const FRESH_MS = 5_000
const FRESH_METERED_MS = 30_000

interface TrafficCountsOptions {
  readonly session: () => Session | undefined
  readonly isMetered: boolean
  readonly clock: Clock
}

/** Traffic of the endpoints, as the service counts it. The service is asked only if somebody wants to know. */
export class TrafficCounts {
  readonly #options: TrafficCountsOptions
  #asked:
    | {
        readonly at: number
        readonly answer: Promise<readonly EndpointTraffic[] | undefined>
      }
    | undefined

  constructor(options: TrafficCountsOptions) {
    this.#options = options
  }

  /** Traffic by domain. Undefined if the service does not tell it, or there is no link. */
  async read(): Promise<ReadonlyMap<string, EndpointTraffic> | undefined> {
    const { session, isMetered, clock } = this.#options
    const now = clock.monotonic()
    const freshMs = isMetered ? FRESH_METERED_MS : FRESH_MS
    if (!this.#asked || now - this.#asked.at >= freshMs) {
      this.#asked = {
        at: now,
        answer: session()?.traffic() ?? Promise.resolve(undefined),
      }
    }
    const found = await this.#asked.answer
    return found && new Map(found.map((it) => [it.domain, it]))
  }
}
