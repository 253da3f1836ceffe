import type { MuxadoError } from './error-code.ts'

/** What the owner of a stream hears. Calls are synchronous; what one throws resets its stream. */
export interface StreamHandler {
  /** Bytes from the peer. `release(n)` once they went on, or the peer stops at a full window. */
  onData(chunk: Buffer): void
  /** The peer's FIN: no more data. */
  onEnd(): void
  /** After `write()` answered false: there is room again. */
  onDrain(): void
  /** The last call. The slot is free; an error says why it ended before both FINs. */
  onClose(error: MuxadoError | undefined): void
}

/** For a stream that nobody listens to: what comes keeps its credit, so it stays within the window. */
export const DEAF: StreamHandler = {
  onData() {},
  onEnd() {},
  onDrain() {},
  onClose() {},
}

/** One stream of a session: a plain object with callbacks, because it lies on the hot path. */
export interface Stream {
  readonly id: number
  /** True once the slot is free. */
  readonly isClosed: boolean
  /** May be replaced at any time, as a pool does between two exchanges. */
  handler: StreamHandler
  /**
   * Takes all bytes; they must not change until they are sent. False means: wait for `onDrain`.
   * Ignored on a stream that is closed or retired. An owner that never waits is cut off with
   * 'send-queue-full'; a write after `end()` ends the stream with 'write-after-end'.
   */
  write(chunk: Buffer): boolean
  /** FIN, after what is still queued. */
  end(): void
  /** Gives back credit for received bytes; sent on in steps of 32 KiB. */
  release(bytes: number): void
  /**
   * Gives the stream up without hurting the peer: drops what is queued, sends FIN, swallows what
   * comes, keeps the slot until the peer's FIN. RST only if DATA still comes: the peer is awake then.
   * Of the handler only `onClose` is called after this.
   */
  retire(): void
  /**
   * RST with an ErrorCode, or a number that both sides have agreed on. Only for a peer that is sending: the SDK
   * keeps the slot of a stream that was quiet.
   */
  reset(code: number): void
}
