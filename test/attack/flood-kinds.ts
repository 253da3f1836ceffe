import { type Flood, idleFloods, madeReset, rapidReset, times } from '../helpers/http2-floods.ts'
import {
  ACK,
  DATA,
  type Field,
  frame,
  head,
  PING,
  PREFACE,
  PRIORITY,
  RST_STREAM,
  SETTINGS,
  uint32,
  WINDOW_UPDATE,
} from '../helpers/http2-frames.ts'

export const FLOODED = 'flooded.site.localhost'

/** What a flood needs to know of its site. */
export interface FloodTarget {
  /** Listeners, by name. */
  readonly ports: Readonly<Record<Listener, number>>
  readonly caFile: string
  /** An API key, and a token of the agent's API, that nobody else uses. */
  readonly apiKey: string
  readonly agentToken: string
}

export type Listener = 'http' | 'https' | 'management' | 'agent'

/** Bytes of one connection: first `opening`, then one piece after the other. */
export interface FloodKind {
  readonly listener: Listener
  readonly opening: (target: FloodTarget) => Buffer
  readonly piece: Flood
  /** Between two pieces; unless given, as fast as the other side reads. */
  readonly everyMs?: number
  /** Ten unless given. */
  readonly connections?: number
}

const GET: readonly Field[] = [
  [':method', 'GET'],
  [':scheme', 'https'],
  [':authority', FLOODED],
  [':path', '/'],
]
const POST: readonly Field[] = [[':method', 'POST'], ...GET.slice(1)]
const BEGINNING = Buffer.concat([PREFACE, frame(SETTINGS, 0, 0), frame(SETTINGS, ACK, 0)])
const streamOf = (n: number) => 1 + 2 * n

function http2(piece: Flood, uploads = 0): FloodKind {
  const heads = times(uploads, (n) => head(streamOf(n), POST, 0))
  const opening = Buffer.concat([BEGINNING, heads])
  return { listener: 'https', opening: () => opening, piece }
}

const always = (piece: Buffer) => () => piece
const tiny = (bytes: number, streams = 1) =>
  http2(
    always(times(1_000, (n) => frame(DATA, 0, streamOf(n % streams), Buffer.alloc(bytes, 'x')))),
    streams,
  )
/** Content pays for the frames that follow it. */
const besideContent = (count: number, idle: Buffer) => {
  const content = frame(DATA, 0, 1, Buffer.alloc(1_000))
  return http2(always(Buffer.concat([content, times(count, () => idle)])), 1)
}
const hundredTimes =
  (flood: Flood): Flood =>
  (n) =>
    times(100, (more) => flood(100 * n + more))
const requests = hundredTimes((n) => head(streamOf(n), GET))
const resets = (n: number) =>
  Buffer.concat([head(streamOf(n), POST, 0), frame(RST_STREAM, 0, streamOf(n), uint32(8))])

/** A JSON body that arrives a byte a second. */
const slowBody = (listener: Listener, line: string, token: (target: FloodTarget) => string) =>
  ({
    listener,
    opening: (target) =>
      Buffer.from(
        `${line} HTTP/1.1\r\nHost: localhost\r\nAuthorization: Bearer ${token(target)}\r\n` +
          'Content-Type: application/json\r\nContent-Length: 1000000\r\n\r\n[',
      ),
    piece: () => Buffer.from(' '),
    everyMs: 1_000,
  }) satisfies FloodKind

const chunkedHead = `POST / HTTP/1.1\r\nHost: ${FLOODED}\r\nTransfer-Encoding: chunked\r\n\r\n`

export const SLOW_BATCH = 'slow bodies to POST /batch'
export const SLOW_SET = 'slow bodies to PUT /tunnels'
export const MANY_READERS = 'readers of /events'

export const FLOOD_KINDS: Readonly<Record<string, FloodKind>> = {
  'DATA of one byte': tiny(1),
  'DATA of one byte on 100 streams': tiny(1, 100),
  'DATA of 17 bytes': tiny(17),
  'empty DATA beside content': besideContent(500, frame(DATA, 0, 1)),
  'WINDOW_UPDATE beside content': besideContent(1_000, frame(WINDOW_UPDATE, 0, 0, uint32(1))),
  'PRIORITY beside content': besideContent(800, frame(PRIORITY, 0, 9, [0, 0, 0, 3, 9])),
  'PING beside content': besideContent(10, frame(PING, 0, 0, Buffer.alloc(8))),
  'SETTINGS beside content': besideContent(10, frame(SETTINGS, 0, 0, [0, 3, 0, 0, 0, 9])),
  ...Object.fromEntries(
    Object.entries(idleFloods(GET)).map(([name, flood]) => [`${name} alone`, http2(flood)]),
  ),
  'HEADERS without a pause': http2(requests),
  'RST_STREAM behind each HEADERS': http2(hundredTimes(rapidReset(GET))),
  'RST_STREAM of uploads': http2(hundredTimes(resets)),
  'streams that the gateway resets': http2(hundredTimes(madeReset(GET))),
  'HTTP/1.1 chunks of one byte': {
    listener: 'http',
    opening: () => Buffer.from(chunkedHead),
    piece: always(Buffer.from('1\r\nx\r\n'.repeat(1_000))),
  },
  [SLOW_BATCH]: slowBody('management', 'POST /batch', ({ apiKey }) => apiKey),
  [SLOW_SET]: slowBody('agent', 'PUT /tunnels', ({ agentToken }) => agentToken),
  [MANY_READERS]: {
    listener: 'agent',
    opening: ({ agentToken }) =>
      Buffer.from(
        `GET /events HTTP/1.1\r\nHost: localhost\r\nAuthorization: Bearer ${agentToken}\r\n\r\n`,
      ),
    piece: () => Buffer.alloc(0),
    everyMs: 1_000,
    // Twice as many as there are places.
    connections: 64,
  },
}
