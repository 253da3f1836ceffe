const HEADER_BYTES = 9
/** Last stream and error code, before the debug data (RFC 9113 6.8). */
const GOAWAY_BYTES = 8
const PREFACE_BYTES = 24

const DATA = 0
const HEADERS = 1
const SETTINGS = 4
const GOAWAY = 7
const CONTINUATION = 9
const END_STREAM = 1
const END_HEADERS = 4

/**
 * Follows the frames of one direction of a connection as they pass (RFC 9113 4.1). Node does not report
 * whether a stream ended or was cut off by a reset without an error. Some versions also do not report that
 * Node gave up a connection.
 */
export class FrameWatch {
  readonly #head = Buffer.alloc(HEADER_BYTES + GOAWAY_BYTES)
  #headBytes = 0
  #headLength = HEADER_BYTES
  /** Rest of a frame that is not part of a head. */
  #payloadLeft: number
  #endedStream = 0
  /** Stream that ends with the message whose frames are arriving; 0 if no stream ends. */
  #endingStream = 0
  /** The frame under way is the last one of its message's part. */
  #isLast = false
  #goawayCode: number | undefined
  #firstType: number | undefined

  /** A client speaks first of all a preface (RFC 9113 3.4). */
  constructor(from: 'client' | 'server') {
    this.#payloadLeft = from === 'client' ? PREFACE_BYTES : 0
  }

  /** Last stream that its sender has ended and whose last frame has arrived completely. */
  get endedStream(): number {
    return this.#endedStream
  }

  /**
   * Error code with which the sender refuses new streams, 0 for no error; undefined while it accepts them.
   */
  get goawayCode(): number | undefined {
    return this.#goawayCode
  }

  /** Whether the connection began with valid HTTP/2 (RFC 9113 3.4); undefined before the first frame. */
  get isHttp2(): boolean | undefined {
    return this.#firstType === undefined ? undefined : this.#firstType === SETTINGS
  }

  see(chunk: Buffer): void {
    let at = 0
    while (at < chunk.length) {
      if (this.#payloadLeft > 0) {
        const bytes = Math.min(this.#payloadLeft, chunk.length - at)
        this.#payloadLeft -= bytes
        at += bytes
        if (this.#payloadLeft === 0) this.#onFrameEnd()
      } else {
        const bytes = Math.min(this.#headLength - this.#headBytes, chunk.length - at)
        chunk.copy(this.#head, this.#headBytes, at, at + bytes)
        this.#headBytes += bytes
        at += bytes
        if (this.#headBytes === this.#headLength) this.#onHead()
      }
    }
  }

  #onHead(): void {
    const head = this.#head
    const payloadBytes = head.readUIntBE(0, 3)
    const type = head.readUInt8(3)
    this.#firstType ??= type
    if (type === GOAWAY && payloadBytes >= GOAWAY_BYTES && this.#headLength === HEADER_BYTES) {
      this.#headLength += GOAWAY_BYTES
      return
    }
    if (type === GOAWAY) {
      const hasCode = this.#headLength > HEADER_BYTES
      this.#goawayCode = hasCode ? head.readUInt32BE(HEADER_BYTES + 4) : 0
    }
    const flags = head.readUInt8(4)
    const mayEnd = type === DATA || type === HEADERS
    if (mayEnd && (flags & END_STREAM) !== 0) {
      this.#endingStream = head.readUInt32BE(5) & 0x7fffffff
    }
    const isOfHead = type === HEADERS || type === CONTINUATION
    this.#isLast = type === DATA || (isOfHead && (flags & END_HEADERS) !== 0)
    this.#payloadLeft = payloadBytes - (this.#headLength - HEADER_BYTES)
    this.#headLength = HEADER_BYTES
    this.#headBytes = 0
    if (this.#payloadLeft === 0) this.#onFrameEnd()
  }

  /** A head may go on in frames of its own (RFC 9113 6.10). */
  #onFrameEnd(): void {
    if (!this.#isLast || this.#endingStream === 0) return
    this.#endedStream = this.#endingStream
    this.#endingStream = 0
  }
}
