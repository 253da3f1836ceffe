import type { Http2Session } from 'node:http2'

/** Of each stream, before anything is known of the path. More: a slow reader makes it wait here. */
export const LEAST_WINDOW_BYTES = 262_144
/** Streams of one connection together; as many as there are have the least in any case. */
const SHARED_BYTES = 8_388_608

/**
 * The receive window of the streams of one connection (RFC 9113 6.9.2). It doubles while the content
 * that comes goes on at once, because then the round trip is the limit, and never while it waits.
 * Node acknowledges what comes at the level of the connection by itself: that window is fixed.
 */
export class ReceiveWindow {
  readonly #session: Http2Session
  readonly #mostBytes: number
  #bytes = LEAST_WINDOW_BYTES
  /** Gone on at once since the last change. */
  #taken = 0

  constructor(session: Http2Session, mostBytes: number) {
    this.#session = session
    this.#mostBytes = mostBytes
  }

  get bytes(): number {
    return this.#bytes
  }

  /** What the window of the connection has to be, so that it never holds a stream up. */
  get connectionBytes(): number {
    return 2 * this.#mostBytes
  }

  /** A piece of content goes on. `isSlow`: it had to wait. `bodies` are the streams that may send some. */
  onContent(bytes: number, isSlow: boolean, bodies: number): void {
    this.#taken = isSlow ? 0 : this.#taken + bytes
    if (this.#taken < this.#bytes / 2) return
    this.#taken = 0
    // Until the last change is acknowledged, nothing can have come because of it.
    if (this.#session.pendingSettingsAck) return
    this.#change(Math.min(2 * this.#bytes, this.#mostFor(bodies)))
  }

  /** Another stream may send content: all of them share what a connection may have. */
  fit(bodies: number): void {
    this.#change(Math.min(this.#bytes, this.#mostFor(bodies)))
  }

  /** Begins again: the memory is needed for others. */
  shrink(): void {
    this.#taken = 0
    this.#change(LEAST_WINDOW_BYTES)
  }

  #mostFor(bodies: number): number {
    let most = this.#mostBytes
    // Halves alone: each change is to be acknowledged, and a client owes few of those at a time.
    while (most > LEAST_WINDOW_BYTES && most * bodies > SHARED_BYTES) most /= 2
    return most
  }

  #change(bytes: number): void {
    if (bytes === this.#bytes || this.#session.destroyed || this.#session.closed) return
    this.#bytes = bytes
    this.#session.settings({ initialWindowSize: bytes })
  }
}
