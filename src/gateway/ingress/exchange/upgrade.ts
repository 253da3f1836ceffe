import type { MuxadoError } from '../../../muxado/error-code.ts'
import type { StreamHandler } from '../../../muxado/stream.ts'
import type { ProxyStream } from '../../streams/proxy-stream.ts'
import type { Client } from '../common/client.ts'
import type { ExchangeTraffic } from '../common/exchange-traffic.ts'
import type { IngressLimits } from '../common/ingress-context.ts'
import { ProgressWatch } from '../common/progress-watch.ts'

export interface UpgradeOptions {
  readonly client: Pick<Client, 'pause' | 'resume' | 'write' | 'end' | 'abort'>
  readonly stream: ProxyStream
  readonly traffic: ExchangeTraffic
  readonly limits: IngressLimits
  /** Called once, when both directions are over. */
  onOver(bytesIn: number, bytesOut: number): void
}

/** Facts of an exchange after its switch to another protocol. */
export interface Switched {
  /** Bytes that wait for the device. */
  readonly heldBytes: number
  /** Bytes from the client. */
  readonly receivedBytes: number
  onClientData(chunk: Buffer): void
  onClientEnd(): void
  /** The client's socket has room again. */
  onClientRoom(): void
  /** The client's connection is gone. */
  onClientClose(): void
  /** Ends the connection after too long a silence; `now` is monotonic. */
  sweep(now: number): void
  /** Bytes of the device. */
  onData(chunk: Buffer): void
}

/** After a 101, or of a TCP connection: bytes go both ways as they are, each end is passed on by itself (RFC 9110 7.8). */
export class Upgrade implements StreamHandler, Switched {
  readonly #options: UpgradeOptions
  readonly #watch: ProgressWatch
  #isClientEnded = false
  #isServiceEnded = false
  #isOver = false
  #bytesIn = 0
  #bytesOut = 0
  #unreleased = 0
  /** Bytes in a device stream that wants no more. */
  #stuckBytes = 0

  constructor(options: UpgradeOptions) {
    this.#options = options
    this.#watch = new ProgressWatch(options.limits)
    options.stream.stream.handler = this
  }

  get heldBytes(): number {
    return this.#stuckBytes
  }

  get receivedBytes(): number {
    return this.#bytesIn
  }

  /** Bytes of the service that do not wait here. */
  get sentBytes(): number {
    return this.#bytesOut - this.#unreleased
  }

  onClientData(chunk: Buffer): void {
    this.#bytesIn += chunk.length
    this.#options.traffic.receive(chunk.length)
    if (this.#options.stream.stream.write(chunk)) return
    this.#stuckBytes = chunk.length
    this.#options.client.pause()
  }

  onClientEnd(): void {
    this.#isClientEnded = true
    this.#options.stream.stream.end()
    if (this.#isServiceEnded) this.#over()
  }

  onClientRoom(): void {
    const bytes = this.#unreleased
    this.#unreleased = 0
    this.#options.stream.stream.release(bytes)
  }

  onClientClose(): void {
    this.#options.stream.retire()
    this.#over()
  }

  sweep(now: number): void {
    const movedBytes = this.#bytesIn + this.sentBytes
    const stall = this.#watch.check({ movedBytes, awaitedBodyBytes: undefined }, now)
    if (stall) this.#options.client.abort()
  }

  onData(chunk: Buffer): void {
    this.#bytesOut += chunk.length
    this.#options.traffic.send(chunk.length)
    if (this.#options.client.write(chunk)) this.#options.stream.stream.release(chunk.length)
    else this.#unreleased += chunk.length
  }

  onEnd(): void {
    this.#isServiceEnded = true
    this.#options.client.end()
    if (this.#isClientEnded) this.#over()
  }

  onDrain(): void {
    this.#stuckBytes = 0
    this.#options.client.resume()
  }

  onClose(error: MuxadoError | undefined): void {
    this.#options.stream.retire()
    // First, because the end of the exchange would close the connection as if it were complete.
    if (error) this.#options.client.abort()
    this.#over()
  }

  #over(): void {
    if (this.#isOver) return
    this.#isOver = true
    this.#options.onOver(this.#bytesIn, this.#bytesOut)
  }
}
