import {
  CONTINUATION,
  DATA,
  END_HEADERS,
  END_STREAM,
  encodeFields,
  type Field,
  frame,
  HEADERS,
  head,
  PING,
  PRIORITY,
  RST_STREAM,
  SETTINGS,
  uint32,
  WINDOW_UPDATE,
} from './http2-frames.ts'

const EIGHT = Buffer.alloc(8)

/** What a connection sends without end, piece by piece: the n-th of them. */
export type Flood = (n: number) => Buffer

export const times = (count: number, make: Flood) =>
  Buffer.concat(Array.from({ length: count }, (_, n) => make(n)))

/** A table entry of 3.9 kB, which later heads name thousands of times. */
const BOMB_SEED = Buffer.concat([
  Buffer.from([0x40, 1, 0x78]),
  Buffer.from([0x7f, 0xbd, 0x1d]),
  Buffer.alloc(127 + 0x3d + 0x1d * 128, 'b'),
])

/** Frames of which none gets anything done, by their names; `get` asks for something that is there. */
export function idleFloods(get: readonly Field[]): Record<string, Flood> {
  const post: readonly Field[] = [[':method', 'POST'], ...get.slice(1)]
  return {
    PING: () => times(100, () => frame(PING, 0, 0, EIGHT)),
    SETTINGS: () => times(100, () => frame(SETTINGS, 0, 0, [0, 3, 0, 0, 0, 9])),
    PRIORITY: () => times(1_000, () => frame(PRIORITY, 0, 9, [0, 0, 0, 3, 9])),
    'frames of an unknown type': () => frame(0x16, 0, 0, Buffer.alloc(16_000)),
    WINDOW_UPDATE: () => times(1_000, () => frame(WINDOW_UPDATE, 0, 0, uint32(1))),
    'empty DATA': (n) =>
      Buffer.concat([
        n === 0 ? head(1, post, 0) : Buffer.alloc(0),
        times(1_000, () => frame(DATA, 0, 1)),
      ]),
    'a head without an end': (n) =>
      n === 0
        ? frame(HEADERS, END_STREAM, 1, encodeFields(get))
        : frame(CONTINUATION, 0, 1, encodeFields([['x-a', 'b'.repeat(8_000)]])),
    'heads that the table makes large': (n) => {
      const fields = n === 0 ? BOMB_SEED : Buffer.alloc(8_000, 0xbe)
      const block = Buffer.concat([encodeFields(get), fields])
      return frame(HEADERS, END_STREAM | END_HEADERS, 1 + 2 * n, block)
    },
  }
}

/** Streams that are opened for nothing (rapid reset). */
export const rapidReset =
  (get: readonly Field[]): Flood =>
  (n) =>
    Buffer.concat([head(1 + 2 * n, get), frame(RST_STREAM, 0, 1 + 2 * n, uint32(8))])

/** Streams that the other side has to reset, because they are longer than they say (MadeYouReset). */
export const madeReset =
  (get: readonly Field[]): Flood =>
  (n) => {
    const short: readonly Field[] = [[':method', 'POST'], ...get.slice(1), ['content-length', '1']]
    return Buffer.concat([head(1 + 2 * n, short, 0), frame(DATA, END_STREAM, 1 + 2 * n, [1, 2])])
  }
