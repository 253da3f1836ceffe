import type { SessionLimits } from '../../../muxado/session-stream.ts'
import type { StreamSlotsLimits } from '../../streams/stream-slots.ts'

/** The types of the streams on a link; heartbeats have their own. */
export const GREETING_STREAM_TYPE = 1
// 2 is VISITOR_STREAM_TYPE of a visitor's stream.
/** One question and its answer, both JSON; see `PeerRpc`. */
export const QUESTION_STREAM_TYPE = 3

/** Limits of the first message on a link, and of its answer. */
export const GREETING_LIMITS = { maxBytes: 4_096, deadlineMs: 5_000 } as const

/** Limits of a call from its first to its last byte, and of its answer from the call on. */
export const QUESTION_LIMITS = { maxBytes: 65_536, deadlineMs: 2_000 } as const
export const ANSWER_LIMITS = { maxBytes: 8_388_608, deadlineMs: 2_000 } as const
/** Limit of unread answers on one link. Further calls get no answer. */
export const MAX_UNREAD_BYTES = 33_554_432
/** On one link: for each name that moves there is one, and up to a thousand move at once. */
export const QUESTIONS_AT_ONCE = 1_024

/**
 * A link carries the visitors of a whole node. Its limit is memory, not the SDK's table of 512: about 12 KB
 * at the serving node for a waiting visitor, and a window of 256 KB for a slow one. Data for slow visitors
 * uses the budget of the link (`BufferAccount`).
 */
export const LINK_LIMITS: Partial<SessionLimits> = {
  openStreams: 8_192,
  streams: 8_704,
  // So many may be opened while the transport is full, with up to 1 KB each.
  backlogBytes: 16_777_216,
}

/**
 * Sharing of a link among visitors, as for the link of a device. An idle stream serves a client that soon
 * asks again; opening another costs little. The wait for a device comes in addition.
 */
export const LINK_SLOTS: Partial<StreamSlotsLimits> = {
  idleMs: 10_000,
  queueMs: 1_500,
  evictAfterMs: 500,
}

/** From an echo to the next beat, and how long an echo may take: a paused node is given up in 3 s. */
export const HEARTBEAT_MS = { intervalMs: 1_000, toleranceMs: 2_000 } as const
