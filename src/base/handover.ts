/** A port, or an item in the data directory, that only one process can hold. */
export interface HandedOver {
  /** Gives it up. If this throws, this process still holds it. */
  release(): void | Promise<void>
  /** Takes it back. */
  reclaim(): void | Promise<void>
}

/** Behavior when a part cannot be taken back. */
export interface HandoverOptions {
  /**
   * Each part needs the parts after it. If one cannot be taken back, the parts before it are not taken back
   * either.
   */
  readonly isChain?: boolean
}

/**
 * Hands exclusive resources to another process, in order. Can take them back in reverse order.
 *
 * INVARIANT: if `release()` throws, the state is the same as before.
 */
export class Handover implements HandedOver {
  readonly #parts: readonly HandedOver[]
  readonly #isChain: boolean
  readonly #released: HandedOver[] = []

  constructor(parts: readonly HandedOver[], { isChain = false }: HandoverOptions = {}) {
    this.#parts = parts
    this.#isChain = isChain
  }

  /** Throws the error of the first part that cannot be released. */
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

  /** Takes back as many parts as possible. Throws the error of the first one that failed. */
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
