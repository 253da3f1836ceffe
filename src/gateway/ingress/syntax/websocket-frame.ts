/** What a frame is (RFC 6455 5.2). */
export const OPCODE = { continuation: 0, text: 1, binary: 2, close: 8, ping: 9, pong: 10 } as const

/** Why a WebSocket ends (RFC 6455 7.4.1). */
export const CLOSE = {
  normal: 1000,
  protocolError: 1002,
  unsupportedData: 1003,
  /** Never sent: a Close without a code. */
  none: 1005,
  tooBig: 1009,
  failed: 1011,
} as const

/** What a control frame carries at most. */
export const MAX_CONTROL_BYTES = 125

const FINAL = 0x80
const LENGTH_16 = 126
const LENGTH_64 = 127

/** What stands before the content of a whole message of a server, which masks nothing. */
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

/** A whole control frame; `content` is short enough. */
export function controlFrame(opcode: number, content: Buffer): Buffer {
  return Buffer.concat([frameHeader(opcode, content.length), content])
}

/** The last frame of one side; `reason` is a short sentence for people. */
export function closeFrame(code: number, reason = ''): Buffer {
  if (code === CLOSE.none) return controlFrame(OPCODE.close, Buffer.alloc(0))
  const content = Buffer.from(`  ${reason}`)
  content.writeUInt16BE(code)
  return controlFrame(OPCODE.close, content)
}
