import type { Duplex } from 'node:stream'

/** Holds its writes back until the end of a tick. */
export interface Corked {
  uncork(): void
}

/**
 * Coalesces the writes of one tick of the event loop: a socket's first chunk goes out at once, the
 * chunks behind it leave together when the tick ends. Downloads come as many small chunks at a time.
 */
export class WriteCoalescer {
  readonly #corked: Corked[] = []
  #tick = 0
  #isTickUnderWay = false

  /** The number of the tick that is under way; the same number means the same tick. */
  tick(): number {
    if (!this.#isTickUnderWay) {
      this.#isTickUnderWay = true
      this.#tick += 1
      setImmediate(() => this.#endTick())
    }
    return this.#tick
  }

  /** Registers `by`, whose `uncork()` is called at the end of the tick. */
  corked(by: Corked): void {
    this.#corked.push(by)
  }

  #endTick(): void {
    this.#isTickUnderWay = false
    for (let by = this.#corked.pop(); by; by = this.#corked.pop()) by.uncork()
  }
}

/** The part of a TCP or TLS socket that a client's connection uses. It has to allow half-open connections. */
export interface ClientSocket extends Duplex {
  readonly remoteAddress?: string | undefined
  readonly remotePort?: number | undefined
  readonly localAddress?: string | undefined
  readonly localPort?: number | undefined
  readonly bytesRead: number
  readonly bytesWritten: number
  setNoDelay(isWanted: boolean): unknown
  /** Drops unsent data; the client gets a reset. Only for TCP. */
  resetAndDestroy(): unknown
}

/** The same for bytes that pass by as they are: of TCP, or of a visitor of another node. */
export interface TransportSocket extends ClientSocket {
  setKeepAlive(isWanted: boolean, delayMs: number): unknown
}
