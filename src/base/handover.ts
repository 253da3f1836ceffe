/** Something in the data folder, or on a port, that only one process may have. */
export interface HandedOver {
  /** Lets go of it. When it throws, this process still has it. */
  release(): void | Promise<void>
  /** Takes it back. */
  reclaim(): void | Promise<void>
}

/** What it holds when a part of it cannot be taken back. */
export interface HandoverOptions {
  /** Parts that need those behind them: when one cannot be taken back, those before it are not either. */
  readonly isChain?: boolean
}

/**
 * Hands what only one process may have to another one, in order, or takes it back in reverse order.
 *
 * INVARIANT: after `release()` has thrown, everything is as it was before.
 */
export class Handover implements HandedOver {
  readonly #parts: readonly HandedOver[]
  readonly #isChain: boolean
  readonly #released: HandedOver[] = []

  constructor(parts: readonly HandedOver[], { isChain = false }: HandoverOptions = {}) {
    this.#parts = parts
    this.#isChain = isChain
  }

  /** Throws what the first part says that cannot be let go of. */
  async release(): Promise<void> {
    try {
      for (const part of this.#parts) {
        await part.release()
        this.#released.push(part)
      }
    } catch (error) {
      await this.reclaim()
      throw error
    }
  }

  /** Takes back what can be, and throws what the first part says that could not. */
  async reclaim(): Promise<void> {
    let problem: { readonly error: unknown } | undefined
    for (let part = this.#released.pop(); part; part = this.#released.pop()) {
      try {
        await part.reclaim()
      } catch (error) {
        if (this.#isChain) throw error
        problem ??= { error }
      }
    }
    if (problem) throw problem.error
  }
}
