import type { EndpointProtocol } from '../records/endpoint-protocol.ts'
import type { EndpointTraffic } from './endpoint.ts'
import { RequestSeries } from './request-series.ts'
import type { RequestStats } from './request-stats.ts'

/** Counters of removed endpoints are summed up when they exceed the number of endpoints by this. */
const MAX_CLOSED = 1_000

/** What is counted under the name of an endpoint. */
interface Followed {
  readonly protocol: EndpointProtocol
  readonly url: string
}

/** Traffic of all endpoints of a protocol, including removed endpoints. */
export interface TrafficTotal {
  requests: number
  active: number
  refused: number
  overBudget: number
  bytesIn: number
  bytesOut: number
}

/**
 * Sums of the counters of endpoints; they only grow. Requests cause no extra counting: the counters of the
 * endpoints are read on demand.
 */
export class TrafficTotals {
  readonly #isOnline: (traffic: EndpointTraffic) => boolean
  readonly #followed = new Map<EndpointTraffic, Followed>()
  readonly #gone = new Map<EndpointProtocol, TrafficTotal>()
  readonly #goneErrors = new Map<string, number>()
  readonly #series = new RequestSeries()

  constructor(isOnline: (traffic: EndpointTraffic) => boolean) {
    this.#isOnline = isOnline
  }

  /** Adds a new endpoint. `online`: number of online endpoints. */
  follow(traffic: EndpointTraffic, { protocol, url }: Followed, online: number): void {
    this.#followed.set(traffic, { protocol, url })
    if (this.#followed.size > online + 1 + MAX_CLOSED) this.#letGo(traffic)
  }

  byProtocol(): ReadonlyMap<EndpointProtocol, TrafficTotal> {
    this.#letGo()
    const totals = new Map([...this.#gone].map(([protocol, total]) => [protocol, { ...total }]))
    for (const [traffic, { protocol }] of this.#followed) add(totals, protocol, traffic)
    return totals
  }

  /** Status classes and durations of requests by URL of the endpoint, of a limited number of URLs. */
  byUrl(): ReadonlyMap<string, RequestStats> {
    this.#letGo()
    return this.#series.read()
  }

  /** Requests that the gateway answered itself, by error code. */
  errors(): ReadonlyMap<string, number> {
    this.#letGo()
    const errors = new Map(this.#goneErrors)
    for (const traffic of this.#followed.keys()) addErrors(errors, traffic)
    return errors
  }

  /**
   * A removed endpoint keeps its counters while it has exchanges under way. The endpoints that stay are placed
   * first, because a URL keeps its values while it has one of them.
   */
  #letGo(except?: EndpointTraffic): void {
    const removed: (readonly [EndpointTraffic, Followed])[] = []
    for (const [traffic, followed] of this.#followed) {
      const stays = traffic === except || traffic.active > 0 || this.#isOnline(traffic)
      if (stays) this.#series.place(traffic, followed.url)
      else removed.push([traffic, followed])
    }
    for (const [traffic, { protocol, url }] of removed) {
      add(this.#gone, protocol, traffic)
      addErrors(this.#goneErrors, traffic)
      this.#series.remove(traffic, url)
      this.#followed.delete(traffic)
    }
  }
}

function add(
  totals: Map<EndpointProtocol, TrafficTotal>,
  protocol: EndpointProtocol,
  traffic: EndpointTraffic,
): void {
  const total = totals.get(protocol) ?? {
    requests: 0,
    active: 0,
    refused: 0,
    overBudget: 0,
    bytesIn: 0,
    bytesOut: 0,
  }
  total.requests += traffic.requests
  total.active += traffic.active
  total.refused += traffic.refused
  total.overBudget += traffic.overBudget
  total.bytesIn += traffic.bytesIn
  total.bytesOut += traffic.bytesOut
  totals.set(protocol, total)
}

function addErrors(errors: Map<string, number>, traffic: EndpointTraffic): void {
  for (const [code, count] of traffic.errors) errors.set(code, (errors.get(code) ?? 0) + count)
}
