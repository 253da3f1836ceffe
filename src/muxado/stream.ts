import type { MuxadoError } from './error-code.ts'

/** Callbacks of a stream's owner. Calls are synchronous. An error thrown by a callback resets its stream. */
export interface StreamHandler {
  /** Whether `onData` may get lent bytes. Others get a copy of them. */
  readonly readsLent?: boolean
  /**
   * Bytes from the peer. Call `release(n)` when they are processed, or the peer stops at a full window.
   * Lent bytes are valid only during the call.
   */
  onData(chunk: Buffer, isLent: boolean): void
  /** The peer's FIN: no more data follows. */
  onEnd(): void
  /** There is room again after `write()` returned false. */
  onDrain(): void
  /** The last call. The slot is free. The error is the reason if the stream ended before both FINs. */
  onClose(error: MuxadoError | undefined): void
}

/**
 * Handler for a stream that is not read. Received bytes keep their credit, so the peer stops at its window.
 */
export const DEAF: StreamHandler = {
  onData() {},
  onEnd() {},
  onDrain() {},
  onClose() {},
}

/** A stream of a session. A plain object with callbacks, because it is on the hot path. */
export interface Stream {
  readonly id: number
  /** True once the slot is free. */
  readonly isClosed: boolean
  /** May be replaced at any time, as a pool does between two exchanges. */
  handler: StreamHandler
  /**
   * Takes all bytes, which must not change until they are sent. False: wait for `onDrain`. Ignored on a
   * closed or retired stream.
   *
   * An owner that never waits is cut off with 'send-queue-full'. A write after `end()` ends the stream with
   * 'write-after-end'.
   */
  write(chunk: Buffer): boolean
  /** Sends FIN after the queued bytes. */
  end(): void
  /**
   * Declares that nothing is awaited from the peer on this stream until the next write. See
   * `SessionOptions.acknowledges`.
   */
  rest(): void
  /** Returns credit for received bytes, which is sent in steps of 32 KiB. */
  release(bytes: number): void
  /**
   * Gives up the stream without harm to the peer: drops queued bytes, sends FIN, discards incoming bytes and
   * keeps the slot until the peer's FIN. Sends RST only if DATA still arrives, because the peer is active
   * then. Only `onClose` of the handler is called after this.
   */
  retire(): void
  /**
   * Sends an RST with an ErrorCode, or with another number agreed on by both sides. Use it only for a peer
   * that is sending: the SDK keeps the slot of a quiet stream.
   */
  reset(code: number): void
}
