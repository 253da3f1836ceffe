import { MAX_UINT31 } from './frame.ts'

/** Sizes that a session keeps to. */
export interface SessionLimits {
  /** Streams of both directions up to which this side opens new ones. */
  readonly openStreams: number
  /** Streams of both directions that may live at once; the peer's next is refused. */
  readonly streams: number
  /** The last id this side gives to a stream; after it the session has to be replaced. */
  readonly lastStreamId: number
  /** Bytes waiting in one stream at which a further write ends it with 'send-queue-full'. */
  readonly sendQueueBytes: number
  /** Bytes with the transport, of all streams, that end the session with 'backlog-full'. */
  readonly backlogBytes: number
  /** A peer that sends this soon after a FIN sends without pause, so it meets an RST at once. */
  readonly busyMs: number
  /** How long the slot of a retired stream is kept whose peer, sending now and then, got an RST. */
  readonly lingerMs: number
}

/**
 * The SDK allows 512 streams, both directions together, and dies in silence at the 513th; the
 * distance of 64 is for those that it has not let go yet.
 */
export const DEFAULT_LIMITS: SessionLimits = {
  openStreams: 448,
  streams: 512,
  lastStreamId: MAX_UINT31,
  sendQueueBytes: 1_048_576,
  backlogBytes: 1_048_576,
  busyMs: 1_000,
  lingerMs: 60_000,
}
