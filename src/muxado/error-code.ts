/** The numbers that travel in RST and GOAWAY frames. A peer may send others. */
export const ErrorCode = {
  none: 0x0,
  protocol: 0x1,
  internal: 0x2,
  flowControl: 0x3,
  streamClosed: 0x4,
  streamRefused: 0x5,
  streamCancelled: 0x6,
  streamReset: 0x7,
  frameSize: 0x8,
  acceptQueueFull: 0x9,
  enhanceYourCalm: 0xa,
  remoteGoneAway: 0xb,
  streamsExhausted: 0xc,
  writeTimeout: 0xd,
  sessionClosed: 0xe,
  peerEof: 0xf,
} as const
export type ErrorCode = (typeof ErrorCode)[keyof typeof ErrorCode]

/** Why something ended, as seen from here, and the code that tells the peer. */
const CODE_OF = {
  /** The peer sent a frame that the protocol does not allow. */
  'protocol-violation': ErrorCode.protocol,
  /** The peer sent a control frame of the wrong length. */
  'frame-size': ErrorCode.frameSize,
  /** The peer sent more than its window, or credit past 2^31 - 1. */
  'window-exceeded': ErrorCode.flowControl,
  /** The peer opened more streams than a session holds. */
  'stream-refused': ErrorCode.streamRefused,
  /** The peer reset the stream; the error carries the peer's code. */
  'stream-reset': ErrorCode.streamReset,
  /** This side reset the stream. */
  'stream-cancelled': ErrorCode.streamCancelled,
  /** The stream's owner kept writing although write() had said false. */
  'send-queue-full': ErrorCode.internal,
  /** The stream's owner wrote after end(). */
  'write-after-end': ErrorCode.internal,
  /** A callback of the stream's owner threw; the error is the cause. */
  'handler-failed': ErrorCode.internal,
  /** No slot is left for a stream of ours, or no stream id. */
  'streams-exhausted': ErrorCode.streamsExhausted,
  /** A mistake of this side; the error is the cause. */
  internal: ErrorCode.internal,
  /** The peer makes this side answer and does not read the answers. */
  'backlog-full': ErrorCode.enhanceYourCalm,
  /** This side sent GOAWAY. */
  'gone-away': ErrorCode.none,
  /** The peer sent GOAWAY; the error carries the peer's code and message. */
  'remote-gone-away': ErrorCode.remoteGoneAway,
  /** The transport ended without a GOAWAY. */
  'peer-eof': ErrorCode.peerEof,
  /** The transport broke; the error is the cause. */
  'transport-failed': ErrorCode.sessionClosed,
  /** The peer's message is too long, is no JSON object, or did not arrive in time. */
  'message-too-large': ErrorCode.enhanceYourCalm,
  'message-invalid': ErrorCode.protocol,
  'message-timeout': ErrorCode.streamCancelled,
} as const satisfies Record<string, ErrorCode>

export type MuxadoReason = keyof typeof CODE_OF

/** A local reason and the numeric code that belongs to it on the wire: two things, never mixed. */
export class MuxadoError extends Error {
  override readonly name = 'MuxadoError'
  readonly reason: MuxadoReason
  readonly code: number

  constructor(
    reason: MuxadoReason,
    message: string,
    options: { code?: number; cause?: unknown } = {},
  ) {
    super(message, options.cause === undefined ? undefined : { cause: options.cause })
    this.reason = reason
    this.code = options.code ?? CODE_OF[reason]
  }
}
