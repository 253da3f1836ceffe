import type { EndpointTraffic } from '../../endpoints/endpoint.ts'

/** Counts one exchange at each endpoint that it comes through: handed on, it goes through several. */
export class ExchangeTraffic {
  #current: EndpointTraffic | undefined
  /** Endpoints that forwarded it. */
  #passed: EndpointTraffic[] | undefined
  /** Bytes that came while it waited for an endpoint. */
  #unclaimed = 0

  enter(traffic: EndpointTraffic): void {
    if (this.#current) {
      this.#passed ??= []
      this.#passed.push(this.#current)
    }
    this.#current = traffic
    traffic.countBegin()
    traffic.bytesIn += this.#unclaimed
    this.#unclaimed = 0
  }

  /** Moves the exchange to another endpoint after its device was lost. It no longer counts at the first. */
  move(traffic: EndpointTraffic): void {
    this.cancel()
    this.enter(traffic)
  }

  /** It goes on at another node, and is counted there. */
  cancel(): void {
    if (!this.#current) return
    this.#current.requests -= 1
    this.#current.active -= 1
    this.#current = undefined
  }

  receive(bytes: number): void {
    if (this.#current) this.#current.bytesIn += bytes
    else this.#unclaimed += bytes
    if (this.#passed) for (const traffic of this.#passed) traffic.bytesIn += bytes
  }

  send(bytes: number): void {
    if (this.#current) this.#current.bytesOut += bytes
    if (this.#passed) for (const traffic of this.#passed) traffic.bytesOut += bytes
  }

  refuse(code: string | undefined): void {
    this.#current?.countRefusal(code)
    if (this.#passed) for (const traffic of this.#passed) traffic.countRefusal(code)
  }

  /** Ends an exchange of HTTP. `status` is 0 if no response began; `ms`: its duration. */
  endRequest(status: number, ms: number): void {
    this.#current?.countEnd(status, ms)
    if (this.#passed) for (const traffic of this.#passed) traffic.countEnd(status, ms)
    this.end()
  }

  end(): void {
    if (this.#current) this.#current.active -= 1
    if (this.#passed) for (const traffic of this.#passed) traffic.active -= 1
  }
}
