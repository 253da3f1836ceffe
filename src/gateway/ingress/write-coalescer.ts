import type { Writable } from 'node:stream'

/**
 * Coalesces the writes of one tick of the event loop: a socket's first chunk goes out at once, the
 * chunks behind it leave together when the tick ends. Downloads come as many small chunks at a time.
 */
export class WriteCoalescer {
  readonly #corked: Writable[] = []
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

  /** Holds back what the socket is given until the end of the tick. */
  cork(socket: Writable): void {
    if (socket.writableCorked > 0) return
    socket.cork()
    this.#corked.push(socket)
  }

  #endTick(): void {
    this.#isTickUnderWay = false
    for (let socket = this.#corked.pop(); socket; socket = this.#corked.pop()) socket.uncork()
  }
}
