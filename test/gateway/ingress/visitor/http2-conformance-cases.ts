import {
  ACK,
  CONTINUATION,
  DATA,
  END_HEADERS,
  END_STREAM,
  encodeFields,
  type Field,
  frame,
  GET,
  GOAWAY,
  HEADERS,
  head,
  PADDED,
  PING,
  POST,
  PREFACE,
  PRIORITY,
  PUSH_PROMISE,
  RST_STREAM,
  SETTINGS,
  uint32,
  WINDOW_UPDATE,
  WITH_PRIORITY,
} from '../../../helpers/http2-frames.ts'

/** Error codes of RFC 9113 7. */
export const PROTOCOL = 1
export const FLOW_CONTROL = 3
export const STREAM_CLOSED = 5
export const FRAME_SIZE = 6
export const REFUSED = 7
export const COMPRESSION = 9

/** What Node says of the errors for which it ends a connection itself. */
export const INTERNAL = 2

/**
 * What has to come of it. `connection`: GOAWAY with one of the codes, or the end of the connection.
 * `stream`: the stream is reset with one of the codes; to end the connection is stricter and allowed
 * (RFC 9113 5.4.2). `alive`: nothing, a PING is answered. `left-out`: the request is served, but the
 * device does not get the field. `refused`: 400, or the stream is reset, as versions of Node do. A number: the status of the answer.
 */
export type Outcome =
  | { readonly connection: readonly number[] }
  | { readonly stream: readonly number[] }
  | 'alive'
  | 'left-out'
  | 'refused'
  | number

export interface ConformanceCase {
  readonly section: string
  readonly text: string
  /** Without it the preface is sent, too. */
  readonly isBare?: boolean
  readonly send: readonly Buffer[]
  readonly outcome: Outcome
}

const connection = (...codes: number[]): Outcome => ({ connection: [...codes, INTERNAL] })
const stream = (...codes: number[]): Outcome => ({ stream: [...codes, INTERNAL] })
const setting = (id: number, value: number) => Buffer.concat([Buffer.from([0, id]), uint32(value)])
const settings = (...parts: Buffer[]) => frame(SETTINGS, 0, 0, Buffer.concat(parts))
const half = (text: string) => Buffer.from(text).subarray(0, text.length)
const block = encodeFields(GET)
const with_ = (...more: Field[]) => [...GET, ...more]
const without = (name: string) => GET.filter(([key]) => key !== name)
const EIGHT = Buffer.alloc(8)

type Row = readonly [section: string, text: string, send: readonly Buffer[], outcome: Outcome]

const ROWS: readonly Row[] = [
  ['4.1', 'a frame of an unknown type is ignored', [frame(0x16, 0, 0, EIGHT)], 'alive'],
  ['4.1', 'unknown flags are ignored', [frame(PING, 0x16, 0, EIGHT)], 'alive'],
  ['4.1', 'the reserved bit is ignored', [frame(PING, 0, 0x80000000, EIGHT)], 'alive'],
  [
    '4.2',
    'a DATA of 2^14 bytes is taken',
    [head(1, POST, 0), frame(DATA, END_STREAM, 1, Buffer.alloc(16_384))],
    200,
  ],
  [
    '4.2',
    'a DATA above the size',
    [head(1, POST, 0), frame(DATA, 0, 1, Buffer.alloc(16_385))],
    stream(FRAME_SIZE),
  ],
  [
    '4.2',
    'a HEADERS above the size',
    [frame(HEADERS, 5, 1, Buffer.alloc(16_385))],
    connection(FRAME_SIZE),
  ],
  ['4.3', 'the index 0', [frame(HEADERS, 5, 1, [0x80])], connection(COMPRESSION)],
  [
    '4.3',
    'an index beyond the tables',
    [frame(HEADERS, 5, 1, [0xff, 0x7f])],
    connection(COMPRESSION),
  ],
  [
    '4.3',
    'a table larger than was offered',
    [frame(HEADERS, 5, 1, Buffer.concat([Buffer.from([0x3f, 0xe2, 0x1f]), block]))],
    connection(COMPRESSION),
  ],
  [
    '4.3',
    'a change of the table behind a field',
    [frame(HEADERS, 5, 1, Buffer.concat([block, Buffer.from([0x20])]))],
    connection(COMPRESSION),
  ],
  [
    '4.3',
    'a string longer than its block',
    [frame(HEADERS, 5, 1, [0, 0x7e, 0x61])],
    connection(COMPRESSION),
  ],
  [
    '4.3',
    'padding of a string longer than seven bits',
    [frame(HEADERS, 5, 1, [0, 0x82, 0x1f, 0xff, 1, 0x61])],
    connection(COMPRESSION),
  ],
  [
    '4.3',
    'a head that PRIORITY interrupts',
    [frame(HEADERS, END_STREAM, 1, block), frame(PRIORITY, 0, 3, Buffer.alloc(5))],
    connection(PROTOCOL),
  ],
  [
    '4.3',
    'a head that another head interrupts',
    [frame(HEADERS, END_STREAM, 1, block), head(3)],
    connection(PROTOCOL),
  ],
  [
    '4.3',
    'a head that a PING interrupts',
    [frame(HEADERS, END_STREAM, 1, block), frame(PING, 0, 0, EIGHT)],
    connection(PROTOCOL),
  ],
  ['5.1', 'DATA on an idle stream', [frame(DATA, 0, 1, [1])], connection(PROTOCOL)],
  [
    '5.1',
    'RST_STREAM on an idle stream',
    [frame(RST_STREAM, 0, 1, uint32(8))],
    connection(PROTOCOL),
  ],
  [
    '5.1',
    'WINDOW_UPDATE on an idle stream',
    [frame(WINDOW_UPDATE, 0, 1, uint32(1))],
    connection(PROTOCOL),
  ],
  [
    '5.1',
    'CONTINUATION on an idle stream',
    [frame(CONTINUATION, END_HEADERS, 1, block)],
    connection(PROTOCOL),
  ],
  ['5.1', 'DATA behind END_STREAM', [head(1), frame(DATA, 0, 1, [1])], stream(STREAM_CLOSED)],
  ['5.1', 'a head behind END_STREAM', [head(1), head(1)], stream(STREAM_CLOSED)],
  [
    '5.1',
    'CONTINUATION behind a whole head',
    [head(1), frame(CONTINUATION, END_HEADERS, 1, block)],
    connection(PROTOCOL, STREAM_CLOSED),
  ],
  [
    '5.1',
    'a head behind RST_STREAM is ignored',
    [head(1, POST, 0), frame(RST_STREAM, 0, 1, uint32(8)), head(1)],
    'alive',
  ],
  [
    '5.1',
    'WINDOW_UPDATE behind END_STREAM is taken',
    [head(1), frame(WINDOW_UPDATE, 0, 1, uint32(1))],
    200,
  ],
  ['5.1', 'PRIORITY on an idle stream is taken', [frame(PRIORITY, 0, 9, Buffer.alloc(5))], 'alive'],
  ['5.1.1', 'a stream of an even number', [head(2)], connection(PROTOCOL)],
  ['5.1.1', 'a stream below the last one is ignored', [head(5), head(3)], 'alive'],
  [
    '5.1.2',
    'more streams than were offered',
    Array.from({ length: 101 }, (_, n) => head(1 + 2 * n, POST, 0)),
    stream(PROTOCOL, REFUSED),
  ],
  [
    '5.5',
    'a frame of an unknown type within a head',
    [frame(HEADERS, END_STREAM, 1, block), frame(0x16, 0, 1, EIGHT)],
    connection(PROTOCOL),
  ],
  ['6.1', 'DATA on stream 0', [frame(DATA, 0, 0, [1])], connection(PROTOCOL)],
  [
    '6.1',
    'DATA with more padding than payload',
    [head(1, POST, 0), frame(DATA, PADDED, 1, [9, 1])],
    connection(PROTOCOL),
  ],
  [
    '6.1',
    'padded DATA is taken',
    [head(1, POST, 0), frame(DATA, PADDED | END_STREAM, 1, [2, 1, 0, 0])],
    200,
  ],
  ['6.2', 'a head on stream 0', [head(0)], connection(PROTOCOL)],
  [
    '6.2',
    'a head with more padding than payload',
    [frame(HEADERS, PADDED | 5, 1, [200, 1])],
    connection(PROTOCOL),
  ],
  [
    '6.2',
    'a padded head is taken',
    [frame(HEADERS, PADDED | 5, 1, Buffer.concat([Buffer.from([2]), block, Buffer.alloc(2)]))],
    200,
  ],
  [
    '6.2',
    'a head with a priority is taken',
    [frame(HEADERS, WITH_PRIORITY | 5, 1, Buffer.concat([uint32(0), Buffer.from([9]), block]))],
    200,
  ],
  [
    '6.3',
    'PRIORITY of another length',
    [head(1, POST, 0), frame(PRIORITY, 0, 1, Buffer.alloc(4))],
    stream(FRAME_SIZE),
  ],
  ['6.4', 'RST_STREAM on stream 0', [frame(RST_STREAM, 0, 0, uint32(8))], connection(PROTOCOL)],
  [
    '6.4',
    'RST_STREAM of another length',
    [head(1, POST, 0), frame(RST_STREAM, 0, 1, [0, 0, 8])],
    connection(FRAME_SIZE),
  ],
  [
    '6.5',
    'an acknowledgement of SETTINGS with a payload',
    [frame(SETTINGS, ACK, 0, setting(3, 1))],
    connection(FRAME_SIZE),
  ],
  ['6.5', 'SETTINGS on a stream', [frame(SETTINGS, 0, 1, setting(3, 1))], connection(PROTOCOL)],
  ['6.5', 'SETTINGS of another length', [frame(SETTINGS, 0, 0, [0, 3, 0])], connection(FRAME_SIZE)],
  ['6.5.2', 'ENABLE_PUSH other than 0 and 1', [settings(setting(2, 2))], connection(PROTOCOL)],
  [
    '6.5.2',
    'INITIAL_WINDOW_SIZE above 2^31-1',
    [settings(setting(4, 0x80000000))],
    connection(FLOW_CONTROL),
  ],
  ['6.5.2', 'MAX_FRAME_SIZE below 2^14', [settings(setting(5, 16_383))], connection(PROTOCOL)],
  [
    '6.5.2',
    'MAX_FRAME_SIZE above 2^24-1',
    [settings(setting(5, 16_777_216))],
    connection(PROTOCOL),
  ],
  ['6.5.2', 'an unknown setting is ignored', [settings(setting(0xff, 1))], 'alive'],
  [
    '6.5.3',
    'of two values for a setting the last one holds',
    [settings(setting(4, 0), setting(4, 100)), head(1)],
    200,
  ],
  [
    '6.6',
    'PUSH_PROMISE of a client',
    [head(1, POST, 0), frame(PUSH_PROMISE, END_HEADERS, 1, Buffer.concat([uint32(2), block]))],
    connection(PROTOCOL),
  ],
  ['6.7', 'PING on a stream', [frame(PING, 0, 1, EIGHT)], connection(PROTOCOL)],
  ['6.7', 'PING of another length', [frame(PING, 0, 0, Buffer.alloc(7))], connection(FRAME_SIZE)],
  ['6.7', 'an acknowledgement of no PING', [frame(PING, ACK, 0, EIGHT)], connection(PROTOCOL)],
  ['6.8', 'GOAWAY on a stream', [frame(GOAWAY, 0, 1, EIGHT)], connection(PROTOCOL)],
  [
    '6.9',
    'WINDOW_UPDATE of 0 for the connection',
    [frame(WINDOW_UPDATE, 0, 0, uint32(0))],
    connection(PROTOCOL),
  ],
  [
    '6.9',
    'WINDOW_UPDATE of 0 for a stream',
    [head(1, POST, 0), frame(WINDOW_UPDATE, 0, 1, uint32(0))],
    stream(PROTOCOL),
  ],
  [
    '6.9',
    'WINDOW_UPDATE of another length',
    [frame(WINDOW_UPDATE, 0, 0, [0, 0, 1])],
    connection(FRAME_SIZE),
  ],
  [
    '6.9.1',
    'a window of the connection above 2^31-1',
    [frame(WINDOW_UPDATE, 0, 0, uint32(0x7fffffff))],
    connection(FLOW_CONTROL),
  ],
  [
    '6.9.1',
    'a window of a stream above 2^31-1',
    [head(1, POST, 0), frame(WINDOW_UPDATE, 0, 1, uint32(0x7fffffff))],
    stream(FLOW_CONTROL),
  ],
  [
    '6.9.2',
    'a window above 2^31-1 by SETTINGS',
    [
      head(1, POST, 0),
      frame(WINDOW_UPDATE, 0, 1, uint32(0x7fff0000)),
      settings(setting(4, 0x7fffffff)),
    ],
    { stream: [FLOW_CONTROL] },
  ],
  [
    '6.10',
    'a head in many parts is taken',
    [
      frame(HEADERS, END_STREAM, 1, block.subarray(0, 5)),
      ...Array.from({ length: 5 }, (_, n) =>
        frame(CONTINUATION, 0, 1, block.subarray(5 + n, 6 + n)),
      ),
      frame(CONTINUATION, END_HEADERS, 1, block.subarray(10)),
    ],
    200,
  ],
  [
    '6.10',
    'CONTINUATION on stream 0',
    [frame(HEADERS, END_STREAM, 1, block), frame(CONTINUATION, END_HEADERS, 0, block)],
    connection(PROTOCOL),
  ],
  [
    '6.10',
    'CONTINUATION on another stream',
    [frame(HEADERS, END_STREAM, 1, block), frame(CONTINUATION, END_HEADERS, 3, block)],
    connection(PROTOCOL),
  ],
  [
    '6.10',
    'a head that DATA interrupts',
    [frame(HEADERS, 0, 1, block), frame(DATA, 0, 1, [1])],
    connection(PROTOCOL),
  ],
  [
    '8.1',
    'trailers that do not end the stream',
    [head(1, POST, 0), head(1, [['x-a', '1']], 0)],
    stream(PROTOCOL),
  ],
  [
    '8.1',
    'trailers are taken',
    [head(1, POST, 0), frame(DATA, 0, 1, [1]), head(1, [['x-a', '1']])],
    200,
  ],
  [
    '8.1.1',
    'less content than its length',
    [head(1, [...POST, ['content-length', '2']], 0), frame(DATA, END_STREAM, 1, [1])],
    stream(PROTOCOL),
  ],
  [
    '8.1.1',
    'more content than its length',
    [
      head(1, [...POST, ['content-length', '2']], 0),
      frame(DATA, 0, 1, [1, 2]),
      frame(DATA, END_STREAM, 1, [3]),
    ],
    stream(PROTOCOL),
  ],
  [
    '8.1.1',
    'no content for a length',
    [head(1, [...POST, ['content-length', '2']])],
    stream(PROTOCOL),
  ],
  [
    '8.1.1',
    'two lengths',
    [head(1, [...POST, ['content-length', '1'], ['content-length', '1']], 0)],
    stream(PROTOCOL),
  ],
  ['8.2', 'a name in upper case', [head(1, with_(['X-A', '1']))], stream(PROTOCOL)],
  ['8.2.1', 'a name with a NUL', [head(1, with_(['x\0a', '1']))], 'left-out'],
  ['8.2.1', 'a name with a space', [head(1, with_(['x a', '1']))], 'left-out'],
  ['8.2.1', 'a name with a colon', [head(1, with_(['x:a', '1']))], 'left-out'],
  ['8.2.1', 'a value with a line break', [head(1, with_(['x-a', '1\r\nx-b: 2']))], 'left-out'],
  ['8.2.1', 'a value with a NUL', [head(1, with_(['x-a', 'a\0b']))], 'left-out'],
  ...(
    ['connection', 'keep-alive', 'proxy-connection', 'transfer-encoding', 'upgrade'] as const
  ).map(
    (name): Row => ['8.2.2', `a field ${name}`, [head(1, with_([name, 'x']))], stream(PROTOCOL)],
  ),
  ['8.2.2', 'TE other than trailers', [head(1, with_(['te', 'gzip']))], stream(PROTOCOL)],
  ['8.2.2', 'TE for trailers is taken', [head(1, with_(['te', 'trailers']))], 200],
  ['8.3', 'a pseudo-field behind a field', [head(1, [['x-a', '1'], ...GET])], stream(PROTOCOL)],
  ['8.3', 'an unknown pseudo-field', [head(1, [...GET, [':x', '1']])], stream(PROTOCOL)],
  ['8.3', 'a pseudo-field of responses', [head(1, [...GET, [':status', '200']])], stream(PROTOCOL)],
  [
    '8.3',
    'a pseudo-field as a trailer',
    [head(1, POST, 0), head(1, [[':method', 'GET']])],
    stream(PROTOCOL),
  ],
  ...[':method', ':scheme', ':path'].map(
    (name): Row => ['8.3.1', `no ${name}`, [head(1, without(name))], stream(PROTOCOL)],
  ),
  ...[':method', ':scheme', ':path', ':authority'].map((name): Row => {
    const twice = GET.find(([key]) => key === name) as Field
    return ['8.3.1', `two ${name}`, [head(1, [twice, ...GET])], stream(PROTOCOL)]
  }),
  ['8.3.1', 'an empty path', [head(1, [...without(':path'), [':path', '']])], stream(PROTOCOL)],
  [
    '8.3.1',
    'a path that is none',
    [head(1, [...without(':path'), [':path', 'x']])],
    stream(PROTOCOL),
  ],
  [
    '8.3.1',
    'an authority with a name and a password',
    [head(1, [...without(':authority'), [':authority', 'u:p@a.test']])],
    'refused',
  ],
  ['8.3.1', 'an authority that another Host denies', [head(1, with_(['host', 'b.test']))], 400],
  ['8.3.1', 'neither authority nor Host', [head(1, without(':authority'))], stream(PROTOCOL)],
  [
    '8.3.1',
    'a Host alone is taken',
    [head(1, [...without(':authority'), ['host', 'a.test']])],
    200,
  ],
  [
    '8.3.1',
    'another scheme than that of the connection',
    [head(1, [...without(':scheme'), [':scheme', 'http']])],
    421,
  ],
  [
    '8.5',
    'a CONNECT to somewhere else',
    [
      head(
        1,
        [
          [':method', 'CONNECT'],
          [':authority', 'a.test:1'],
        ],
        0,
      ),
    ],
    501,
  ],
  [
    '8.5',
    'a CONNECT with a path',
    [head(1, [[':method', 'CONNECT'], ...GET.slice(1)], 0)],
    stream(PROTOCOL),
  ],
  ['10.3', 'a look-alike of Content-Length', [head(1, with_(['content_length', '2']))], 400],
]

export const CONFORMANCE_CASES: readonly ConformanceCase[] = [
  {
    section: '3.4',
    text: 'no preface',
    isBare: true,
    send: [half('GET / HTTP/1.1\r\nHost: a.test\r\n\r\n')],
    outcome: connection(PROTOCOL),
  },
  {
    section: '3.4',
    text: 'another frame than SETTINGS first',
    isBare: true,
    send: [PREFACE, frame(PING, 0, 0, EIGHT)],
    outcome: connection(PROTOCOL),
  },
  ...ROWS.map(([section, text, send, outcome]) => ({ section, text, send, outcome })),
]
