export interface CircuitOptions {
  /** Share of failures, 0 to 1, at which the circuit opens. */
  readonly errorThreshold: number
  /** Requests that have to be seen in the window before it can open. */
  readonly volumeThreshold: number
  readonly windowMs: number
  readonly trippedMs: number
}

/** `probe`: the single request that checks whether the upstream works again. */
export type Admission = 'pass' | 'probe' | 'refuse'

const SLICES = 10

/** A circuit breaker over a rolling window of ten slices. Times are monotonic milliseconds. */
export class Circuit {
  readonly #options: CircuitOptions
  readonly #totals = new Uint32Array(SLICES)
  readonly #failures = new Uint32Array(SLICES)
  #slice = 0
  #openUntil: number | undefined

  constructor(options: CircuitOptions) {
    this.#options = options
  }

  admit(now: number): Admission {
    if (this.#openUntil === undefined) return 'pass'
    if (now < this.#openUntil) return 'refuse'
    // If the probe never ends, another follows after the same time.
    this.#openUntil = now + this.#options.trippedMs
    return 'probe'
  }

  /** Milliseconds until a probe may pass; 0 while the circuit is closed. */
  waitMs(now: number): number {
    return Math.max(0, (this.#openUntil ?? now) - now)
  }

  /** Counts how an admitted request ended. */
  record(now: number, admission: Admission, failed: boolean): void {
    if (admission === 'probe') {
      this.#openUntil = failed ? now + this.#options.trippedMs : undefined
      this.#totals.fill(0)
      this.#failures.fill(0)
      return
    }
    // Requests from before it opened have been judged already.
    if (this.#openUntil !== undefined) return
    this.#moveTo(now)
    const place = this.#slice % SLICES
    this.#totals[place] = (this.#totals[place] ?? 0) + 1
    if (!failed) return
    this.#failures[place] = (this.#failures[place] ?? 0) + 1
    const total = sum(this.#totals)
    if (total < this.#options.volumeThreshold) return
    if (sum(this.#failures) / total < this.#options.errorThreshold) return
    this.#openUntil = now + this.#options.trippedMs
  }

  #moveTo(now: number): void {
    const current = Math.floor((now * SLICES) / this.#options.windowMs)
    const passed = Math.min(SLICES, current - this.#slice)
    for (let step = 0; step < passed; step += 1) {
      this.#totals[(current - step) % SLICES] = 0
      this.#failures[(current - step) % SLICES] = 0
    }
    this.#slice = Math.max(this.#slice, current)
  }
}

function sum(counts: Uint32Array): number {
  let total = 0
  for (const count of counts) total += count
  return total
}
