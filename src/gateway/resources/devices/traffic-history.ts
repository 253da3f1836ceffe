import type { Clock } from '../../../base/clock.ts'
import type { ConnectedAgent, EndpointTraffic } from '../../endpoints/endpoint.ts'

/** One value per minute, for one hour. */
const STEP_MS = 60_000
const STEPS = 60
/** Maximum number of endpoints with traffic in the last hour; under 1 kB each. */
const MAX_SERIES = 10_000

/** Values per minute of the last hour, oldest first. */
export interface TrafficSeries {
  readonly requests: readonly number[]
  /** Requests that the gateway answered with an error. */
  readonly errors: readonly number[]
  readonly bytes: readonly number[]
}

interface Counted {
  readonly requests: number
  readonly errors: number
  readonly bytes: number
}

interface Series {
  /** Ring buffers of `STEPS` values, created with the first traffic. */
  readonly requestsOf: Float32Array
  readonly errorsOf: Float32Array
  readonly bytesOf: Float32Array
  /** Last step with traffic. */
  busyAt: number
}

export interface TrafficHistoryOptions {
  /** Connected sessions, by device key. */
  readonly devices: () => Iterable<readonly [key: string, sessions: Iterable<ConnectedAgent>]>
  readonly clock: Clock
}

/**
 * Traffic of endpoints per minute. Reads the existing counters once a minute, so requests have no extra cost.
 * Endpoints without traffic use no memory.
 */
export class TrafficHistory {
  readonly #options: TrafficHistoryOptions
  /** By device and URL, so that a returning endpoint continues its series. */
  readonly #series = new Map<string, Series>()
  /** Counter values at the last check, also for endpoints whose series was dropped. */
  readonly #counted = new WeakMap<EndpointTraffic, Counted>()
  readonly #stopping = new AbortController()
  #step = 0

  constructor(options: TrafficHistoryOptions) {
    this.#options = options
  }

  start(): void {
    void this.#run()
  }

  stop(): void {
    this.#stopping.abort()
  }

  /** Undefined for an endpoint without traffic in the last hour. */
  of(key: string, url: string): TrafficSeries | undefined {
    const series = this.#series.get(`${key} ${url}`)
    if (!series || series.busyAt <= this.#step - STEPS) return undefined
    return {
      requests: this.#inOrder(series.requestsOf),
      errors: this.#inOrder(series.errorsOf),
      bytes: this.#inOrder(series.bytesOf),
    }
  }

  async #run(): Promise<void> {
    const { clock } = this.#options
    const { signal } = this.#stopping
    for (;;) {
      await clock.sleep(STEP_MS, signal).catch(() => {})
      if (signal.aborted) return
      this.#advance()
    }
  }

  #advance(): void {
    this.#step += 1
    const slot = this.#step % STEPS
    for (const { requestsOf, errorsOf, bytesOf } of this.#series.values()) {
      requestsOf[slot] = 0
      errorsOf[slot] = 0
      bytesOf[slot] = 0
    }
    for (const [key, sessions] of this.#options.devices()) {
      for (const session of sessions) {
        for (const { url, traffic } of session.endpoints()) this.#note(`${key} ${url}`, traffic)
      }
    }
    for (const [name, { busyAt }] of this.#series) {
      if (busyAt <= this.#step - STEPS) this.#series.delete(name)
    }
  }

  #note(name: string, traffic: EndpointTraffic): void {
    const { requests, refused: errors } = traffic
    const bytes = traffic.bytesIn + traffic.bytesOut
    // A reopened endpoint has new counters, which start at 0.
    const before = this.#counted.get(traffic) ?? { requests: 0, errors: 0, bytes: 0 }
    const moreRequests = requests - before.requests
    const moreErrors = errors - before.errors
    const moreBytes = bytes - before.bytes
    if (moreRequests <= 0 && moreErrors <= 0 && moreBytes <= 0) return
    this.#counted.set(traffic, { requests, errors, bytes })
    const known = this.#series.get(name)
    if (!known && this.#series.size >= MAX_SERIES) return
    const series = known ?? this.#addSeries(name)
    const slot = this.#step % STEPS
    // Two sessions of a device may serve the endpoint at once.
    series.requestsOf[slot] = (series.requestsOf[slot] ?? 0) + Math.max(0, moreRequests)
    series.errorsOf[slot] = (series.errorsOf[slot] ?? 0) + Math.max(0, moreErrors)
    series.bytesOf[slot] = (series.bytesOf[slot] ?? 0) + Math.max(0, moreBytes)
    series.busyAt = this.#step
  }

  #addSeries(name: string): Series {
    const series = {
      requestsOf: new Float32Array(STEPS),
      errorsOf: new Float32Array(STEPS),
      bytesOf: new Float32Array(STEPS),
      busyAt: 0,
    }
    this.#series.set(name, series)
    return series
  }

  #inOrder(ring: Float32Array): number[] {
    return Array.from(ring, (_, at) => ring[(this.#step + 1 + at) % STEPS] ?? 0)
  }
}
