import type { IngressLimits } from './ingress-context.ts'

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
   * `movedBytes` so far. Of `heldBytes`, the moved part is unknown, because the system reports only complete
   * writes. So a slow reader is detected later.
   */
  measure(movedBytes: number, heldBytes: number, now: number): void {
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

/** Progress of an exchange at a check of the clock. */
export interface Progress {
  /** Bytes that went anywhere so far. */
  readonly movedBytes: number
  /** Bytes of the request body so far; undefined while the client is not waited for. */
  readonly awaitedBodyBytes: number | undefined
  /** Allowed silence now, if it differs from the limits. */
  readonly silenceMs?: number
}

export type Stall = 'slow-body' | 'silence'

/** Notices an exchange that does not move. Looked at now and then, so a transfer pays nothing. */
export class ProgressWatch {
  readonly #limits: IngressLimits
  /** NaN, so that the first value counts as progress. */
  #movedBytes = Number.NaN
  #movedAt = 0
  #windowBytes: number | undefined
  #windowUntil = 0

  constructor(limits: IngressLimits) {
    this.#limits = limits
  }

  check(
    { movedBytes, awaitedBodyBytes, silenceMs = this.#limits.silenceMs }: Progress,
    now: number,
  ): Stall | undefined {
    if (movedBytes !== this.#movedBytes) {
      this.#movedBytes = movedBytes
      this.#movedAt = now
    }
    if (now - this.#movedAt > silenceMs) return 'silence'
    return this.#isTooSlow(awaitedBodyBytes, now) ? 'slow-body' : undefined
  }

  #isTooSlow(bodyBytes: number | undefined, now: number): boolean {
    const { bodyWindowBytes, bodyWindowMs } = this.#limits
    if (bodyBytes === undefined) {
      this.#windowBytes = undefined
      return false
    }
    if (this.#windowBytes !== undefined && now < this.#windowUntil) return false
    const isTooSlow =
      this.#windowBytes !== undefined && bodyBytes - this.#windowBytes < bodyWindowBytes
    this.#windowBytes = bodyBytes
    this.#windowUntil = now + bodyWindowMs
    return isTooSlow
  }
}
