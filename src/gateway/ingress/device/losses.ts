/** Methods that change nothing, so that a request may go out again when its device was lost. */
const SAFE: ReadonlySet<string> = new Set(['GET', 'HEAD', 'OPTIONS'])
/** How often a device may get it again that may have seen it: it may be what ends the device. */
const MAX_REPEATS = 2
/** How often an exchange may lose its device at all. */
const MAX_LOSSES = 4

export interface LostRequest {
  /** The device may have seen it. */
  readonly wasSent: boolean
  readonly method: string
  readonly hasBody: boolean
  /** The client has heard nothing. */
  readonly isSilent: boolean
}

/** How often one exchange has lost its device. */
export class Losses {
  #losses = 0
  #repeats = 0

  /**
   * Whether nobody can tell that a request goes out twice: the device has not got it, or it is safe
   * to repeat (RFC 9110 9.2.1) and the client has heard nothing. Bounded, for devices that it ends.
   */
  mayGoOutAgain({ wasSent, method, hasBody, isSilent }: LostRequest): boolean {
    if (this.#losses >= MAX_LOSSES) return false
    if (wasSent) {
      if (this.#repeats >= MAX_REPEATS) return false
      this.#repeats += 1
      if (!SAFE.has(method) || hasBody || !isSilent) return false
    }
    this.#losses += 1
    return true
  }
}
