/** A rate means something over this time. */
const WINDOW_MS = 10_000

/** How fast something moves, at most. Looked at now and then, so a transfer pays nothing. */
export class RateMeter {
  #since: number | undefined
  #bytes = 0
  #rate: number | undefined

  /** Bytes a second over the last ten seconds or more; undefined while it is younger. */
  get rate(): number | undefined {
    return this.#rate
  }

  /**
   * `movedBytes` so far; of `heldBytes` nobody knows how many have moved, because a system says so
   * only when all of a write is gone. So it takes longer to tell who takes little at a time.
   */
  look(movedBytes: number, heldBytes: number, now: number): void {
    if (this.#since === undefined) {
      this.#start(movedBytes, now)
      return
    }
    const elapsedMs = now - this.#since
    if (elapsedMs < WINDOW_MS) return
    this.#rate = ((movedBytes - this.#bytes + heldBytes) * 1_000) / elapsedMs
    if (movedBytes !== this.#bytes) this.#start(movedBytes, now)
  }

  #start(bytes: number, now: number): void {
    this.#since = now
    this.#bytes = bytes
  }
}
