import { INITIAL_WINDOW_BYTES, MAX_UINT31 } from './frame.ts'

/** Credit goes back in steps of this size: larger ones stall the peer, smaller ones cost frames. */
const CREDIT_STEP_BYTES = 32_768

/** What this side may still send on a stream. */
export class SendWindow {
  #available = INITIAL_WINDOW_BYTES

  get available(): number {
    return this.#available
  }

  take(bytes: number): void {
    this.#available -= bytes
  }

  /** False when the peer grants more than the protocol can count. */
  grow(bytes: number): boolean {
    this.#available += bytes
    return this.#available <= MAX_UINT31
  }
}

/**
 * What the peer may still send on a stream. Each byte of the window is in one of three places:
 * granted to the peer, with the stream's owner, or owed to the peer. So what an owner holds
 * is never more than the window.
 */
export class ReceiveWindow {
  #granted = INITIAL_WINDOW_BYTES
  #owed = 0

  /** Received bytes that the owner has not released. */
  get unreleased(): number {
    return INITIAL_WINDOW_BYTES - this.#granted - this.#owed
  }

  /** False when the peer sent more than it was granted. */
  receive(bytes: number): boolean {
    this.#granted -= bytes
    return this.#granted >= 0
  }

  /** Takes bytes back from the owner; true when enough is owed for a step. */
  release(bytes: number): boolean {
    this.#owed += Math.min(bytes, this.unreleased)
    return this.#owed >= CREDIT_STEP_BYTES
  }

  /** Grants what is owed and says how much that is. */
  grant(): number {
    const bytes = this.#owed
    this.#owed = 0
    this.#granted += bytes
    return bytes
  }
}
