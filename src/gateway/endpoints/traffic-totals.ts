import type { EndpointProtocol } from '../records/endpoint-protocol.ts'
import type { EndpointTraffic } from './endpoint.ts'

/** Counters of removed endpoints are summed up when they exceed the number of endpoints by this. */
const MAX_CLOSED = 1_000

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
  readonly #followed = new Map<EndpointTraffic, EndpointProtocol>()
  readonly #gone = new Map<EndpointProtocol, TrafficTotal>()
  readonly #goneErrors = new Map<string, number>()

  constructor(isOnline: (traffic: EndpointTraffic) => boolean) {
    this.#isOnline = isOnline
  }

  /** Adds a new endpoint. `online`: number of online endpoints. */
  follow(traffic: EndpointTraffic, protocol: EndpointProtocol, online: number): void {
    if (this.#followed.size > online + MAX_CLOSED) this.#letGo(traffic)
    this.#followed.set(traffic, protocol)
  }

  byProtocol(): ReadonlyMap<EndpointProtocol, TrafficTotal> {
    this.#letGo()
    const totals = new Map([...this.#gone].map(([protocol, total]) => [protocol, { ...total }]))
    for (const [traffic, protocol] of this.#followed) add(totals, protocol, traffic)
    return totals
  }

  /** Requests that the gateway answered itself, by error code. */
  errors(): ReadonlyMap<string, number> {
    this.#letGo()
    const errors = new Map(this.#goneErrors)
    for (const traffic of this.#followed.keys()) addErrors(errors, traffic)
    return errors
  }

  /** A removed endpoint keeps its counters while it has exchanges under way. */
  #letGo(except?: EndpointTraffic): void {
    for (const [traffic, protocol] of this.#followed) {
      if (traffic === except || traffic.active > 0 || this.#isOnline(traffic)) continue
      add(this.#gone, protocol, traffic)
      addErrors(this.#goneErrors, traffic)
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
