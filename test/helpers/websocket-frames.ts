const MASK = Buffer.from([0x12, 0x80, 0xff, 0x01])

export interface FrameWish {
  readonly isFinal?: boolean
  /** Bits that only extensions set. */
  readonly reserved?: number
}

/** A frame as clients of a WebSocket send it (RFC 6455 5.2). */
export function clientFrame(opcode: number, content: Buffer, wish: FrameWish = {}): Buffer {
  const { isFinal = true, reserved = 0 } = wish
  const first = (isFinal ? 0x80 : 0) | reserved | opcode
  const masked = Buffer.from(content.map((byte, index) => byte ^ (MASK[index % 4] as number)))
  return Buffer.concat([Buffer.from([first]), lengthOf(content.length), MASK, masked])
}

/** What a server has sent, whole frames of it, which nobody masks. */
export function serverFrames(bytes: Buffer): { opcode: number; content: Buffer }[] {
  const frames: { opcode: number; content: Buffer }[] = []
  let at = 0
  while (at < bytes.length) {
    const opcode = bytes.readUInt8(at) & 0xf
    const short = bytes.readUInt8(at + 1)
    const isLong = short > 125
    const length =
      short === 127
        ? Number(bytes.readBigUInt64BE(at + 2))
        : isLong
          ? bytes.readUInt16BE(at + 2)
          : short
    at += short === 127 ? 10 : isLong ? 4 : 2
    frames.push({ opcode, content: bytes.subarray(at, at + length) })
    at += length
  }
  return frames
}

function lengthOf(length: number): Buffer {
  if (length < 126) return Buffer.from([0x80 | length])
  const isShort = length < 65_536
  const bytes = Buffer.alloc(isShort ? 3 : 9)
  bytes[0] = 0x80 | (isShort ? 126 : 127)
  if (isShort) bytes.writeUInt16BE(length, 1)
  else bytes.writeBigUInt64BE(BigInt(length), 1)
  return bytes
}
