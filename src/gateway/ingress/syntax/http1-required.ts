const PREFACE = Buffer.from('PRI * HTTP/2.0\r\n')

/** Whether a client begins HTTP/2 without TLS, by prior knowledge (RFC 9113 3.3). */
export function isHttp2Preface(chunk: Buffer, at: number): boolean {
  return chunk.subarray(at, at + PREFACE.length).equals(PREFACE)
}

/** Nine bytes, then the payload (RFC 9113 4.1); all of them are of the connection. */
function frame(type: number, payload: Buffer): Buffer {
  const head = Buffer.alloc(9)
  head.writeUIntBE(payload.length, 0, 3)
  head.writeUInt8(type, 3)
  return Buffer.concat([head, payload])
}

const SETTINGS = 4
const GOAWAY = 7
const NO_STREAM = [0, 0, 0, 0]
const ERROR = [0, 0, 0, 0xd]
const REASON = 'This port speaks HTTP/1.1. Use the HTTPS port for HTTP/2.'

/** What tells such a client to use HTTP/1.1: settings, which come first, and the end of the connection. */
export const HTTP_1_1_REQUIRED: Buffer = Buffer.concat([
  frame(SETTINGS, Buffer.alloc(0)),
  frame(GOAWAY, Buffer.concat([Buffer.from([...NO_STREAM, ...ERROR]), Buffer.from(REASON)])),
])
