import type { Writable } from 'node:stream'

/**
 * One turn of the event loop, for writes: a socket's first chunk goes out at once, the chunks
 * behind it leave together at the end of the turn. Downloads come as many small chunks at a time.
 */
export class WriteTurn {
  readonly #corked: Writable[] = []
  #number = 0
  #isUnderWay = false

  /** The number of the turn that is under way; the same number means the same turn. */
  current(): number {
    if (!this.#isUnderWay) {
      this.#isUnderWay = true
      this.#number += 1
      setImmediate(() => this.#end())
    }
    return this.#number
  }

  /** Holds back what the socket is given until the end of the turn. */
  cork(socket: Writable): void {
    if (socket.writableCorked > 0) return
    socket.cork()
    this.#corked.push(socket)
  }

  #end(): void {
    this.#isUnderWay = false
    for (let socket = this.#corked.pop(); socket; socket = this.#corked.pop()) socket.uncork()
  }
}
