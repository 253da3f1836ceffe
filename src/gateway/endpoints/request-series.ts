import type { EndpointTraffic } from './endpoint.ts'
import { RequestStats } from './request-stats.ts'

/** URLs with a name of their own. Their histogram stays below the limit of series. */
export const MAX_NAMED = 75
const OTHER = 'other'

/** Requests of one URL: of its endpoints that are online, and of those that were removed since. */
interface Named {
  readonly members: Set<EndpointTraffic>
  readonly removed: RequestStats
}

/**
 * Statistics of requests, by URL of the endpoint: the first `MAX_NAMED` with requests by name, the rest as
 * `other`.
 *
 * INVARIANTS, because the values of a counter must not go down:
 * - An endpoint that once counted as `other` counts there until the end, also after its removal.
 * - A URL keeps its name until the last of its endpoints is removed. Its values then disappear.
 */
export class RequestSeries {
  readonly #named = new Map<string, Named>()
  readonly #others = new Set<EndpointTraffic>()
  readonly #removedOthers = new RequestStats()

  /** Removes an endpoint without open requests. Place the endpoints that stay first. */
  remove(traffic: EndpointTraffic, url: string): void {
    const { stats } = traffic
    const isOther = this.#others.delete(traffic)
    const named = isOther ? undefined : this.#named.get(url)
    // An endpoint of a short life may never have been placed.
    if (stats) (named?.removed ?? this.#removedOthers).add(stats)
    named?.members.delete(traffic)
    if (named?.members.size === 0) this.#named.delete(url)
  }

  /** The statistics of all URLs. */
  read(): Map<string, RequestStats> {
    const all = new Map<string, RequestStats>()
    for (const [url, { members, removed }] of this.#named) all.set(url, sumOf(removed, members))
    const isOtherUsed = this.#others.size > 0 || this.#removedOthers.classes.some((it) => it > 0)
    if (isOtherUsed) all.set(OTHER, sumOf(this.#removedOthers, this.#others))
    return all
  }

  /** Adds an endpoint to its URL. The first endpoint of a URL needs a request for that. May be repeated. */
  place(traffic: EndpointTraffic, url: string): void {
    if (this.#others.has(traffic)) return
    const named = this.#named.get(url)
    if (named) named.members.add(traffic)
    else if (!traffic.stats) return
    else if (this.#named.size < MAX_NAMED)
      this.#named.set(url, { members: new Set([traffic]), removed: new RequestStats() })
    else this.#others.add(traffic)
  }
}

function sumOf(removed: RequestStats, members: Iterable<EndpointTraffic>): RequestStats {
  const sum = new RequestStats()
  sum.add(removed)
  for (const { stats } of members) if (stats) sum.add(stats)
  return sum
}
