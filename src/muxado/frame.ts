/**
 * What a muxado frame is. Header, 8 bytes: length of the body (uint24 BE), type << 4 | flags (1 byte),
 * stream id (uint32 BE, top bit 0). Then the body.
 */
export const FrameType = { reset: 0, data: 1, windowIncrement: 2, goAway: 3 } as const
export type FrameType = (typeof FrameType)[keyof typeof FrameType]

/** Flags of a DATA frame: FIN half-closes the sender's side, SYN opens the stream. */
export const FIN = 0x1
export const SYN = 0x2

export const HEADER_BYTES = 8
/** Body of RST (error code) and of WNDINC (increment): one uint32. */
export const WORD_BYTES = 4
/** Body of GOAWAY before its message: last stream id and error code. */
export const GO_AWAY_BYTES = 8

/** The largest DATA body that is sent: with its header it fills one TLS record (2^14 bytes). */
export const MAX_DATA_BYTES = 16_376
/** What is kept of a GOAWAY message. */
export const MAX_GO_AWAY_MESSAGE_BYTES = 1_024
/** Ids, increments and windows are 31-bit numbers. */
export const MAX_UINT31 = 0x7fff_ffff
/** Credit of a new stream, each direction. There is no window of the whole session. */
export const INITIAL_WINDOW_BYTES = 262_144

/**
 * A place that frames go to: the writer on the way out, the session on the way in, a trace in between.
 * One DATA frame may come in as several `data` calls: SYN then stands on the first, FIN on the last.
 */
export interface FrameSink {
  data(streamId: number, body: Buffer, flags: number): void
  reset(streamId: number, code: number): void
  windowIncrement(streamId: number, bytes: number): void
  goAway(lastStreamId: number, code: number, message: string): void
}
