/** Types of frames (RFC 6455 5.2). */
export const OPCODE = { continuation: 0, text: 1, binary: 2, close: 8, ping: 9, pong: 10 } as const

/** Codes for the end of a WebSocket (RFC 6455 7.4.1). */
export const CLOSE = {
  normal: 1000,
  protocolError: 1002,
  unsupportedData: 1003,
  /** Never sent: a Close without a code. */
  none: 1005,
  tooBig: 1009,
  failed: 1011,
} as const

/** Maximum content of a control frame. */
const MAX_CONTROL_BYTES = 125

const FINAL = 0x80
const LENGTH_16 = 126
const LENGTH_64 = 127

/** Returns the header of a complete message from a server; servers do not mask. */
export function frameHeader(opcode: number, length: number): Buffer {
  if (length <= MAX_CONTROL_BYTES) return Buffer.from([FINAL | opcode, length])
  if (length < 65_536) {
    const header = Buffer.from([FINAL | opcode, LENGTH_16, 0, 0])
    header.writeUInt16BE(length, 2)
    return header
  }
  const header = Buffer.alloc(10)
  header[0] = FINAL | opcode
  header[1] = LENGTH_64
  header.writeBigUInt64BE(BigInt(length), 2)
  return header
}

/** Returns a complete control frame; `content` must be short enough. */
export function controlFrame(opcode: number, content: Buffer): Buffer {
  return Buffer.concat([frameHeader(opcode, content.length), content])
}

/** Returns the last frame of one side; `reason` is a short sentence for people. */
export function closeFrame(code: number, reason = ''): Buffer {
  if (code === CLOSE.none) return controlFrame(OPCODE.close, Buffer.alloc(0))
  const content = Buffer.from(`  ${reason}`)
  content.writeUInt16BE(code)
  return controlFrame(OPCODE.close, content)
}

/** End of the client's side: `closed` by a Close, or a protocol `fault`. */
export interface WebSocketEnd {
  readonly kind: 'closed' | 'fault'
  /** Code to answer with. */
  readonly code: number
  /** For people; empty if the client closed. */
  readonly reason: string
}

interface Frame {
  readonly opcode: number
  /** Remaining bytes of the content. */
  left: number
  readonly mask: readonly [number, number, number, number]
  /** Index of the next byte of the mask. */
  maskAt: number
}

/** Longest header, with its mask. */
const MAX_HEADER_BYTES = 14
const MASK_BYTES = 4
const MASKED = 0x80
const RESERVED = 0x70
const CONTROL = 0x8
/** Content after a Close is ignored. */
const NOTHING = Buffer.alloc(0)

/**
 * Reads the frames of a client's WebSocket (RFC 6455 5), however the bytes are split. The content of binary
 * messages is passed on at once, whole frames are not collected. Only the header of a frame and the content
 * of a control frame are kept.
 */
export class FrameReader {
  readonly #onPing: (content: Buffer) => void
  readonly #header = Buffer.alloc(MAX_HEADER_BYTES)
  #headerBytes = 0
  readonly #control = Buffer.alloc(MAX_CONTROL_BYTES)
  #controlBytes = 0
  #frame: Frame | undefined
  /** A message has begun and its last frame has not arrived. */
  #isInMessage = false
  #end: WebSocketEnd | undefined

  constructor(onPing: (content: Buffer) => void) {
    this.#onPing = onPing
  }

  /** Set once. Later data is not read. */
  get end(): WebSocketEnd | undefined {
    return this.#end
  }

  /** Returns the content of binary messages in a chunk, whose memory it overwrites. */
  read(chunk: Buffer): Buffer {
    let at = 0
    let contentBytes = 0
    while (at < chunk.length && !this.#end) {
      const frame = this.#frame
      if (!frame) {
        at = this.#readHeader(chunk, at)
        continue
      }
      const end = Math.min(chunk.length, at + frame.left)
      const isControl = frame.opcode >= CONTROL
      const target = isControl ? this.#control : chunk
      const from = isControl ? this.#controlBytes : contentBytes
      unmask(frame, { chunk, at, end }, target, from)
      if (isControl) this.#controlBytes += end - at
      else contentBytes += end - at
      frame.left -= end - at
      at = end
      if (frame.left === 0) this.#endFrame(frame)
    }
    return contentBytes === 0 ? NOTHING : chunk.subarray(0, contentBytes)
  }

  #readHeader(chunk: Buffer, from: number): number {
    let at = from
    while (at < chunk.length && this.#headerBytes < this.#headerLength) {
      this.#header[this.#headerBytes] = chunk[at] as number
      this.#headerBytes += 1
      at += 1
    }
    if (this.#headerBytes === this.#headerLength) {
      this.#headerBytes = 0
      this.#begin()
    }
    return at
  }

  /** Known after two bytes. */
  get #headerLength(): number {
    if (this.#headerBytes < 2) return 2
    const { length } = this.#shortLength
    return 2 + length + ((this.#header[1] as number) & MASKED ? MASK_BYTES : 0)
  }

  /** Meaning of the second byte: the length, or the number of bytes that state the length. */
  get #shortLength(): { readonly value: number; readonly length: 0 | 2 | 8 } {
    const value = (this.#header[1] as number) & ~MASKED
    return { value, length: value === 126 ? 2 : value === 127 ? 8 : 0 }
  }

  #begin(): void {
    const header = this.#header
    const first = header[0] as number
    const opcode = first & 0xf
    const { value, length } = this.#shortLength
    const left =
      length === 0
        ? value
        : length === 2
          ? header.readUInt16BE(2)
          : Number(header.readBigUInt64BE(2))
    const isMasked = ((header[1] as number) & MASKED) !== 0
    const fault = this.#faultOf(first, opcode, left)
    if (!isMasked || fault) {
      const { code, reason } = fault ?? {
        code: CLOSE.protocolError,
        reason: 'a frame without mask',
      }
      this.#end = { kind: 'fault', code, reason }
      return
    }
    if (opcode < CONTROL) this.#isInMessage = (first & FINAL) === 0
    else this.#controlBytes = 0
    const [a = 0, b = 0, c = 0, d = 0] = header.subarray(2 + length, 2 + length + MASK_BYTES)
    const frame: Frame = { opcode, left, mask: [a, b, c, d], maskAt: 0 }
    if (left === 0) this.#endFrame(frame)
    else this.#frame = frame
  }

  #faultOf(first: number, opcode: number, length: number) {
    const wrong = (reason: string) => ({ code: CLOSE.protocolError, reason })
    if ((first & RESERVED) !== 0) return wrong('an extension that was not negotiated')
    if (!Number.isSafeInteger(length)) return { code: CLOSE.tooBig, reason: 'an incomplete frame' }
    switch (opcode) {
      case OPCODE.text:
        return { code: CLOSE.unsupportedData, reason: 'only binary messages are supported' }
      case OPCODE.binary:
        return this.#isInMessage
          ? wrong('a new message before the end of the previous message')
          : undefined
      case OPCODE.continuation:
        return this.#isInMessage ? undefined : wrong('a continuation frame without a message')
      case OPCODE.close:
      case OPCODE.ping:
      case OPCODE.pong: {
        const isWhole = (first & FINAL) !== 0 && length <= MAX_CONTROL_BYTES
        return isWhole ? undefined : wrong('an invalid control frame')
      }
      default:
        return wrong('a frame with an unknown opcode')
    }
  }

  #endFrame({ opcode }: Frame): void {
    this.#frame = undefined
    if (opcode < CONTROL) return
    const content = this.#control.subarray(0, this.#controlBytes)
    if (opcode === OPCODE.ping) this.#onPing(Buffer.from(content))
    else if (opcode === OPCODE.close) this.#end = endIn(content)
  }
}

function endIn(content: Buffer): WebSocketEnd {
  if (content.length === 0) return { kind: 'closed', code: CLOSE.none, reason: '' }
  const code = content.length < 2 ? 0 : content.readUInt16BE()
  return isCloseCode(code)
    ? { kind: 'closed', code, reason: '' }
    : { kind: 'fault', code: CLOSE.protocolError, reason: 'an invalid close code' }
}

/** Codes of RFC 6455 7.4, and codes registered later. */
function isCloseCode(code: number): boolean {
  if (code >= 3000) return code < 5000
  return code >= 1000 && code <= 1014 && ![1004, 1005, 1006].includes(code)
}

interface Part {
  readonly chunk: Buffer
  readonly at: number
  readonly end: number
}

/** Works forwards, so that content may move down within its own chunk. */
function unmask(frame: Frame, { chunk, at, end }: Part, target: Buffer, from: number): void {
  const { mask } = frame
  let { maskAt } = frame
  let to = from
  for (let index = at; index < end; index += 1) {
    target[to] = (chunk[index] as number) ^ (mask[maskAt] as number)
    maskAt = (maskAt + 1) & 3
    to += 1
  }
  frame.maskAt = maskAt
}
