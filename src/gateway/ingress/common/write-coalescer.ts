/** What holds its writes back until a tick is over. */
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

  /** Somebody holds writes back, until the end of the tick. */
  corked(by: Corked): void {
    this.#corked.push(by)
  }

  #endTick(): void {
    this.#isTickUnderWay = false
    for (let by = this.#corked.pop(); by; by = this.#corked.pop()) by.uncork()
  }
}
