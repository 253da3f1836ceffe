import type { SessionLimits } from '../../../muxado/session-stream.ts'
import type { StreamSlotsLimits } from '../../streams/stream-slots.ts'

/** The types of the streams on a link; heartbeats have their own. */
export const GREETING_STREAM_TYPE = 1
// 2 is VISITOR_STREAM_TYPE of a visitor's stream.
/** One question and its answer, both JSON; see `Questions`. */
export const QUESTION_STREAM_TYPE = 3

/** What the first message on a link, or the answer to it, may take. */
export const GREETING_LIMITS = { maxBytes: 4_096, deadlineMs: 5_000 } as const

/** What a question may take, from its first byte to its last; and its answer, from the question on. */
export const QUESTION_LIMITS = { maxBytes: 65_536, deadlineMs: 2_000 } as const
export const ANSWER_LIMITS = { maxBytes: 8_388_608, deadlineMs: 2_000 } as const
/** Answers on one link that nobody has read: who asks once more than that hears nothing. */
export const MOST_UNREAD_BYTES = 33_554_432
/** On one link: for each name that moves there is one, and up to a thousand move at once. */
export const QUESTIONS_AT_ONCE = 1_024

/**
 * A link carries the visitors of a whole node, and the other side is no SDK with a table of 512: what
 * bounds it is memory, about 12 KB at the home for a visitor who waits, and a window of 256 KB while
 * one is slow. What waits for slow ones comes from the budget of the link (`BufferAccount`).
 */
export const LINK_LIMITS: Partial<SessionLimits> = {
  openStreams: 8_192,
  streams: 8_704,
  // So many may be opened while the transport is full, with up to 1 KB each.
  backlogBytes: 16_777_216,
}

/**
 * How the visitors of a node share its link, as those of a device share that. An idle stream is there
 * for who asks again soon; to open another one costs little. The wait for a device comes on top.
 */
export const LINK_SLOTS: Partial<StreamSlotsLimits> = {
  idleMs: 10_000,
  queueMs: 1_500,
  evictAfterMs: 500,
}

/** From an echo to the next beat, and how long an echo may take: a paused node is given up in 3 s. */
export const HEARTBEAT_MS = { intervalMs: 1_000, toleranceMs: 2_000 } as const
