/** Codes of RST and GOAWAY frames. A peer may send others. */
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

/** Local reasons for the end of a stream or session, with the code sent to the peer. */
const CODE_OF = {
  /** The peer sent a frame that the protocol does not allow. */
  'protocol-violation': ErrorCode.protocol,
  /** The peer sent a control frame of the wrong length. */
  'frame-size': ErrorCode.frameSize,
  /** The peer sent more than its window, or credit past 2^31 - 1. */
  'window-exceeded': ErrorCode.flowControl,
  /** The peer opened more streams than a session allows. */
  'stream-refused': ErrorCode.streamRefused,
  /** The peer reset the stream. The error carries the peer's code. */
  'stream-reset': ErrorCode.streamReset,
  /** This side reset the stream. */
  'stream-cancelled': ErrorCode.streamCancelled,
  /** The stream's owner kept writing after write() had returned false. */
  'send-queue-full': ErrorCode.internal,
  /** The stream's owner wrote after end(). */
  'write-after-end': ErrorCode.internal,
  /** A callback of the stream's owner threw. `cause` is that error. */
  'handler-failed': ErrorCode.internal,
  /** This side cannot open another stream: no free slot, or no stream id left. */
  'streams-exhausted': ErrorCode.streamsExhausted,
  /** Bug on this side. `cause` is the error. */
  internal: ErrorCode.internal,
  /** The peer keeps requesting answers without reading them. */
  'backlog-full': ErrorCode.enhanceYourCalm,
  /** This side sent GOAWAY. */
  'gone-away': ErrorCode.none,
  /** The peer sent GOAWAY. The error carries the peer's code and message. */
  'remote-gone-away': ErrorCode.remoteGoneAway,
  /** The transport ended without a GOAWAY. */
  'peer-eof': ErrorCode.peerEof,
  /** The transport failed. `cause` is the error. */
  'transport-failed': ErrorCode.sessionClosed,
  /** The peer's message is too long, not a JSON object, or did not arrive in time. */
  'message-too-large': ErrorCode.enhanceYourCalm,
  'message-invalid': ErrorCode.protocol,
  'message-timeout': ErrorCode.streamCancelled,
} as const satisfies Record<string, ErrorCode>

export type MuxadoReason = keyof typeof CODE_OF

/**
 * A local reason, and the numeric code for the wire. They are separate, because the code may be the peer's.
 */
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
