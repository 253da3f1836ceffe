import { MuxadoError } from './error-code.ts'

/**
 * Frame types of muxado. A frame is an 8-byte header and a body. Header: length of the body (uint24 BE), type
 * << 4 | flags (1 byte), stream id (uint32 BE, top bit 0).
 */
const FrameType = { reset: 0, data: 1, windowIncrement: 2, goAway: 3 } as const
export type FrameType = (typeof FrameType)[keyof typeof FrameType]

/** Flags of a DATA frame. FIN half-closes the sender's side, SYN opens the stream. */
export const FIN = 0x1
export const SYN = 0x2

export const HEADER_BYTES = 8
/** Body of RST (error code) and WNDINC (increment): one uint32. */
export const WORD_BYTES = 4
/** Part of a GOAWAY body before the message: last stream id and error code. */
export const GO_AWAY_BYTES = 8

/** Largest DATA body to send. With its header it fills one TLS record (2^14 bytes). */
export const MAX_DATA_BYTES = 16_376
/** Bytes kept of a GOAWAY message. */
export const MAX_GO_AWAY_MESSAGE_BYTES = 1_024
/** Ids, increments and windows are 31-bit numbers. */
export const MAX_UINT31 = 0x7fff_ffff
/** Initial credit of a stream, in each direction. A session as a whole has no window. */
export const INITIAL_WINDOW_BYTES = 262_144

/**
 * Receiver of frames: the writer for outgoing frames, the session for incoming ones, or a trace in between.
 *
 * One incoming DATA frame may cause several `data` calls. The first has SYN, the last has FIN.
 */
export interface FrameSink {
  data(streamId: number, body: Buffer, flags: number): void
  reset(streamId: number, code: number): void
  windowIncrement(streamId: number, bytes: number): void
  goAway(lastStreamId: number, code: number, message: string): void
}

const EMPTY = Buffer.alloc(0)

function putHeader(
  target: Buffer,
  at: number,
  type: FrameType,
  flags: number,
  streamId: number,
  length: number,
): number {
  target.writeUInt32BE(((length << 8) | (type << 4) | flags) >>> 0, at)
  return target.writeUInt32BE(streamId, at + 4)
}

/** Writes a DATA frame at `at`. Returns the offset after the frame, like the other functions here. */
export function putData(
  target: Buffer,
  at: number,
  streamId: number,
  body: Buffer,
  flags: number,
): number {
  const start = putHeader(target, at, FrameType.data, flags, streamId, body.length)
  return start + body.copy(target, start)
}

export function putReset(target: Buffer, at: number, streamId: number, code: number): number {
  const start = putHeader(target, at, FrameType.reset, 0, streamId, WORD_BYTES)
  return target.writeUInt32BE(code, start)
}

export function putWindowIncrement(
  target: Buffer,
  at: number,
  streamId: number,
  bytes: number,
): number {
  const start = putHeader(target, at, FrameType.windowIncrement, 0, streamId, WORD_BYTES)
  return target.writeUInt32BE(bytes, start)
}

/**
 * Writes a GOAWAY frame. The length covers the whole body, as the SDK reads it. The SDK itself writes only
 * the message's length.
 */
export function putGoAway(
  target: Buffer,
  at: number,
  lastStreamId: number,
  code: number,
  message: string,
): number {
  const text = Buffer.from(message).subarray(0, MAX_GO_AWAY_MESSAGE_BYTES)
  let end = putHeader(target, at, FrameType.goAway, 0, 0, GO_AWAY_BYTES + text.length)
  end = target.writeUInt32BE(lastStreamId, end)
  end = target.writeUInt32BE(code, end)
  return end + text.copy(target, end)
}

/**
 * Decodes chunks of any size into frames. DATA bodies are passed on in parts as they arrive. Bodies of
 * control frames are capped. GOAWAY is the last frame: later bytes are dropped.
 *
 * Throws MuxadoError 'protocol-violation' or 'frame-size', and must not be used after that.
 */
export class FrameDecoder {
  readonly #sink: FrameSink
  readonly #header = Buffer.alloc(HEADER_BYTES)
  readonly #word = Buffer.alloc(WORD_BYTES)
  #headerFilled = 0
  #type: number = FrameType.data
  #flags = 0
  #streamId = 0
  #bodyLeft = 0
  #control = EMPTY
  #wentAway = false

  constructor(sink: FrameSink) {
    this.#sink = sink
  }

  push(chunk: Buffer): void {
    let at = 0
    while (at < chunk.length && !this.#wentAway) {
      if (this.#bodyLeft === 0) at = this.#readHeader(chunk, at)
      else if (this.#type === FrameType.data) at = this.#passData(chunk, at)
      else at = this.#readControl(chunk, at)
    }
  }

  #readHeader(chunk: Buffer, at: number): number {
    if (this.#headerFilled === 0 && chunk.length - at >= HEADER_BYTES) {
      this.#beginFrame(chunk, at)
      return at + HEADER_BYTES
    }
    const copied = chunk.copy(this.#header, this.#headerFilled, at)
    this.#headerFilled += copied
    if (this.#headerFilled === HEADER_BYTES) {
      this.#headerFilled = 0
      this.#beginFrame(this.#header, 0)
    }
    return at + copied
  }

  #beginFrame(bytes: Buffer, at: number): void {
    const word = bytes.readUInt32BE(at)
    const length = word >>> 8
    this.#type = (word >>> 4) & 0xf
    this.#flags = word & (FIN | SYN)
    // The top bit is reserved and ignored, as in the SDK.
    this.#streamId = bytes.readUInt32BE(at + 4) & MAX_UINT31
    this.#bodyLeft = length
    switch (this.#type) {
      case FrameType.data:
        this.#expectStream('DATA')
        if (length === 0) this.#sink.data(this.#streamId, EMPTY, this.#flags)
        return
      case FrameType.reset:
        this.#expectStream('RST')
        this.#expectWord('RST', length)
        return
      case FrameType.windowIncrement:
        this.#expectStream('WNDINC')
        this.#expectWord('WNDINC', length)
        return
      case FrameType.goAway: {
        // The SDK does not count these 8 bytes in the length, so a shorter length is valid.
        const message = Math.min(Math.max(0, length - GO_AWAY_BYTES), MAX_GO_AWAY_MESSAGE_BYTES)
        this.#bodyLeft = GO_AWAY_BYTES + message
        this.#control = Buffer.alloc(this.#bodyLeft)
        return
      }
      default:
        throw new MuxadoError('protocol-violation', `unknown frame type ${this.#type}`)
    }
  }

  #expectStream(name: string): void {
    if (this.#streamId === 0) throw new MuxadoError('protocol-violation', `${name} on stream 0`)
  }

  #expectWord(name: string, length: number): void {
    if (length !== WORD_BYTES) {
      throw new MuxadoError('frame-size', `${name} with a body of ${length} bytes`)
    }
    this.#control = this.#word
  }

  #passData(chunk: Buffer, at: number): number {
    const end = Math.min(chunk.length, at + this.#bodyLeft)
    this.#bodyLeft -= end - at
    const flags = this.#bodyLeft === 0 ? this.#flags : this.#flags & ~FIN
    this.#flags &= ~SYN
    this.#sink.data(this.#streamId, chunk.subarray(at, end), flags)
    return end
  }

  #readControl(chunk: Buffer, at: number): number {
    const body = this.#control
    const copied = chunk.copy(body, body.length - this.#bodyLeft, at)
    this.#bodyLeft -= copied
    if (this.#bodyLeft === 0) this.#passControl(body)
    return at + copied
  }

  #passControl(body: Buffer): void {
    const word = body.readUInt32BE(0)
    if (this.#type === FrameType.reset) this.#sink.reset(this.#streamId, word)
    else if (this.#type === FrameType.windowIncrement) {
      this.#sink.windowIncrement(this.#streamId, word & MAX_UINT31)
    } else {
      this.#wentAway = true
      const message = body.toString('utf8', GO_AWAY_BYTES)
      this.#sink.goAway(word & MAX_UINT31, body.readUInt32BE(WORD_BYTES), message)
    }
  }
}
