import {
  ACK,
  DATA,
  type Field,
  frame,
  head,
  PING,
  PREFACE,
  PRIORITY,
  SETTINGS,
  uint32,
  WINDOW_UPDATE,
} from '../helpers/http2-frames.ts'

export const FLOODED = 'flooded.site.localhost'

/** Bytes of one connection: first `opening`, then `piece` again and again. */
export interface FloodKind {
  readonly isHttp2: boolean
  readonly opening: Buffer
  readonly piece: Buffer
}

const POST: readonly Field[] = [
  [':method', 'POST'],
  [':scheme', 'https'],
  [':authority', FLOODED],
  [':path', '/'],
]
const times = (count: number, make: (n: number) => Buffer) =>
  Buffer.concat(Array.from({ length: count }, (_, n) => make(n)))
const streamOf = (n: number) => 1 + 2 * n

function http2(streams: number, piece: Buffer): FloodKind {
  const heads = times(streams, (n) => head(streamOf(n), POST, 0))
  const opening = [PREFACE, frame(SETTINGS, 0, 0), frame(SETTINGS, ACK, 0), heads]
  return { isHttp2: true, opening: Buffer.concat(opening), piece }
}

const tiny = (bytes: number, streams = 1) =>
  http2(
    streams,
    times(1_000, (n) => frame(DATA, 0, streamOf(n % streams), Buffer.alloc(bytes, 'x'))),
  )
/** Content pays for the frames that follow it. */
const besideContent = (count: number, idle: Buffer) =>
  http2(1, Buffer.concat([frame(DATA, 0, 1, Buffer.alloc(1_000)), times(count, () => idle)]))
const CHUNKED = `POST / HTTP/1.1\r\nHost: ${FLOODED}\r\nTransfer-Encoding: chunked\r\n\r\n`

export const FLOOD_KINDS: Readonly<Record<string, FloodKind>> = {
  'DATA of one byte': tiny(1),
  'DATA of one byte on 100 streams': tiny(1, 100),
  'DATA of 17 bytes': tiny(17),
  'empty DATA beside content': besideContent(500, frame(DATA, 0, 1)),
  'WINDOW_UPDATE beside content': besideContent(1_000, frame(WINDOW_UPDATE, 0, 0, uint32(1))),
  'PRIORITY beside content': besideContent(800, frame(PRIORITY, 0, 9, [0, 0, 0, 3, 9])),
  'PING beside content': besideContent(10, frame(PING, 0, 0, Buffer.alloc(8))),
  'HTTP/1.1 chunks of one byte': {
    isHttp2: false,
    opening: Buffer.from(CHUNKED),
    piece: Buffer.from('1\r\nx\r\n'.repeat(1_000)),
  },
}
