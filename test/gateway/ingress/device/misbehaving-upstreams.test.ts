import { setImmediate as nextTurn } from 'node:timers/promises'
import { describe, expect, it } from 'vitest'
import { eventually } from '../../../helpers/eventually.ts'
import { FrameDevice, responseHead, SETTINGS_FRAME } from '../../../helpers/http2-device.ts'
import {
  ACK,
  CONTINUATION,
  DATA,
  END_HEADERS,
  END_STREAM,
  encodeFields,
  type Frame,
  frame,
  GOAWAY,
  HEADERS,
  PING,
  PRIORITY,
  PUSH_PROMISE,
  RST_STREAM,
  SETTINGS,
  uint32,
  WINDOW_UPDATE,
} from '../../../helpers/http2-frames.ts'
import { answerOf, connectHttp2, openStream } from '../../../helpers/http2-visitor.ts'
import { isBehindNode, startIngressSite } from '../../../helpers/ingress-site.ts'
import { type PublicRequest, publicRequest } from '../../../helpers/public-request.ts'

const MIB = 1_048_576
const EIGHT = Buffer.alloc(8)
/** What a flood may send before it is given up as not bounded at all. */
const MAX_BYTES = 60 * MIB
const ANSWER_MS = 400

const times = (count: number, make: (n: number) => Buffer) =>
  Buffer.concat(Array.from({ length: count }, (_, n) => make(n)))

/** Does what it does when it has the head of a request. */
type Serve = (device: FrameDevice, stream: number, request: Frame) => void

/** A site whose device plays services in turn: the one that misbehaves, then good ones. */
async function siteOf(serve: Serve, first: Buffer | null = SETTINGS_FRAME, answerMs = 60_000) {
  const devices: FrameDevice[] = []
  const good: Serve = (device, stream) =>
    device.send(responseHead(stream), frame(DATA, END_STREAM, stream, Buffer.from('good')))
  const site = await startIngressSite({
    service: 1,
    appProtocol: 'http2',
    limits: { answerMs, sweepMs: 20 },
    serve(stream) {
      const isFirst = devices.length === 0
      const device = new FrameDevice(stream, (_device, got) => {
        if (got.type === SETTINGS && got.flags === 0) {
          const settings = isFirst ? first : SETTINGS_FRAME
          if (settings) device.send(settings, frame(SETTINGS, ACK, 0))
        }
        if (got.type === HEADERS) (isFirst ? serve : good)(device, got.stream, got)
      })
      devices.push(device)
    },
  })
  const visit = (request: Partial<PublicRequest> = {}) =>
    publicRequest({
      ingress: `http://127.0.0.1:${site.addresses.http.port}`,
      host: 'a.test',
      ...request,
    })
  return { site, devices, visit, free: site.session.freeSlots }
}

/** Of requests, that have come. */
function contentBytes(device: FrameDevice | undefined): number {
  const content = device?.frames.filter(({ type }) => type === DATA) ?? []
  return content.reduce((sum, { payload }) => sum + payload.length, 0)
}

/** Sends one piece after the other until the connection is ended; answers how many bytes that took. */
async function flood(device: FrameDevice, piece: (n: number) => Buffer): Promise<number> {
  let sent = 0
  for (let n = 0; !device.isEnded && sent < MAX_BYTES; n += 1) {
    const bytes = piece(n)
    sent += bytes.length
    device.send(bytes)
    while (device.isBlocked && !device.isEnded) await nextTurn()
    if (n % 16 === 0) await nextTurn()
  }
  if (!device.isEnded) throw new Error('the connection is still open')
  return sent
}

/** A table entry of 3.9 kB, then a head that names it thousands of times. */
const BOMB_SEED = Buffer.concat([
  Buffer.from([0x40, 1, 0x78]),
  Buffer.from([0x7f, 0xbd, 0x1d]),
  Buffer.alloc(127 + 0x3d + 0x1d * 128, 'b'),
])
const STATUS = encodeFields([[':status', '200']])
const GARBAGE = Buffer.alloc(64, 0x55)

/** What a service does in place of a response. */
const BROKEN: readonly (readonly [what: string, serve: Serve])[] = [
  ['resets the stream', (it, id) => it.send(frame(RST_STREAM, 0, id, uint32(2)))],
  ['resets it without an error', (it, id) => it.send(frame(RST_STREAM, 0, id, uint32(0)))],
  ['cancels it', (it, id) => it.send(frame(RST_STREAM, 0, id, uint32(8)))],
  [
    'says GOAWAY with an error',
    (it) => it.send(frame(GOAWAY, 0, 0, Buffer.concat([uint32(0), uint32(2)]))),
  ],
  ['sends garbage', (it) => it.send(GARBAGE)],
  ['closes', (it) => it.end()],
  ['breaks off', (it) => it.send(frame(PING, 0, 0, EIGHT)) ?? it.reset()],
  ['sends a body without a head', (it, id) => it.send(frame(DATA, END_STREAM, id, [1]))],
  ['sends a body of no request', (it) => it.send(frame(DATA, END_STREAM, 99, [1]))],
  [
    'sends a head without a status',
    (it, id) => it.send(frame(HEADERS, END_STREAM | END_HEADERS, id, encodeFields([['x-a', 'b']]))),
  ],
  [
    'sends a status that is none',
    (it, id) =>
      it.send(frame(HEADERS, END_STREAM | END_HEADERS, id, encodeFields([[':status', '20']]))),
  ],
  [
    'sends 101',
    (it, id) => it.send(frame(HEADERS, END_HEADERS, id, encodeFields([[':status', '101']]))),
  ],
  [
    'sends a field of HTTP/1',
    (it, id) => it.send(responseHead(id, END_STREAM, [['connection', 'close']])),
  ],
  [
    'sends a Transfer-Encoding',
    (it, id) => it.send(responseHead(id, 0, [['transfer-encoding', 'chunked']])),
  ],
  ['sends a name in upper case', (it, id) => it.send(responseHead(id, END_STREAM, [['X-A', 'b']]))],
  [
    'sends two lengths',
    (it, id) =>
      it.send(
        responseHead(id, 0, [
          ['content-length', '1'],
          ['content-length', '2'],
        ]),
      ),
  ],
  [
    'sends a length without a body',
    (it, id) => it.send(responseHead(id, END_STREAM, [['content-length', '5']])),
  ],
  [
    'sends a field list that cannot be read',
    (it, id) =>
      it.send(frame(HEADERS, END_STREAM | END_HEADERS, id, [0xff, 0xff, 0xff, 0xff, 0xff, 0xff])),
  ],
  ['sends a head on a stream of its own', (it) => it.send(responseHead(2))],
  [
    'pushes',
    (it, id) => it.send(frame(PUSH_PROMISE, END_HEADERS, id, Buffer.concat([uint32(2), STATUS]))),
  ],
  ['sends a frame that is too long', (it, id) => it.send(frame(DATA, 0, id, Buffer.alloc(20_000)))],
  ['gives credit past all bounds', (it) => it.send(frame(WINDOW_UPDATE, 0, 0, uint32(0x7fffffff)))],
  ['gives no credit', (it, id) => it.send(frame(WINDOW_UPDATE, 0, id, uint32(0)))],
  [
    'answers with more heads in front than there may be',
    (it, id) =>
      it.send(times(40, () => frame(HEADERS, END_HEADERS, id, encodeFields([[':status', '103']])))),
  ],
  [
    'sends a head that is too large',
    (it, id) =>
      it.send(
        frame(
          HEADERS,
          END_STREAM,
          id,
          Buffer.concat([STATUS, encodeFields([['x-a', 'b'.repeat(16_000)]])]),
        ),
        ...Array.from({ length: 4 }, (_, n) =>
          frame(
            CONTINUATION,
            n === 3 ? END_HEADERS : 0,
            id,
            encodeFields([[`x-${n}`, 'b'.repeat(16_000)]]),
          ),
        ),
      ),
  ],
  [
    'sends more fields than there may be',
    (it, id) =>
      it.send(
        responseHead(
          id,
          END_STREAM,
          Array.from({ length: 300 }, (_, n) => [`x-${n}`, ''] as const),
        ),
      ),
  ],
  [
    'sends a head that the table makes large',
    (it, id) =>
      it.send(
        frame(
          HEADERS,
          END_STREAM | END_HEADERS,
          id,
          Buffer.concat([STATUS, BOMB_SEED, Buffer.alloc(8_000, 0xbe)]),
        ),
      ),
  ],
]

describe('a service of HTTP/2 in whose response nobody can trust', () => {
  it.each(BROKEN)('is answered for with 502 when it %s', async (_what, serve) => {
    const { site, visit, free } = await siteOf(serve)
    const answer = await visit()
    expect([answer.status, answer.headers['ngrok-error-code']]).toEqual([502, 'ERR_NGROK_3004'])
    // The next one has another connection.
    expect((await visit()).text).toBe('good')
    expect(site.endpoint.traffic.active).toBe(0)
    await eventually(() => expect(site.session.freeSlots).toBe(free - 1))
  })

  it.each<[string, Buffer]>([
    ['HTTP/1.1', Buffer.from('HTTP/1.1 400 Bad Request\r\nContent-Length: 0\r\n\r\n')],
    ['no HTTP at all', Buffer.from('SSH-2.0-OpenSSH_9.2p1\r\n')],
    ['another frame first', frame(PING, 0, 0, EIGHT)],
  ])('is told apart where it speaks %s', async (_what, bytes) => {
    const { visit } = await siteOf(() => {}, bytes)
    const answer = await visit()
    expect([answer.status, answer.headers['ngrok-error-code']]).toEqual([502, 'ERR_NGROK_3004'])
    expect((await visit()).text).toBe('good')
  })

  it.each<[string, Buffer | null, Serve]>([
    ['never speaks', null, () => {}],
    ['never answers', SETTINGS_FRAME, () => {}],
    ['grants no stream', frame(SETTINGS, 0, 0, [0, 3, 0, 0, 0, 0]), () => {}],
  ])('is given up when it %s', async (_what, first, serve) => {
    const { site, visit, free } = await siteOf(serve, first, ANSWER_MS)
    expect((await visit()).status).toBe(504)
    expect((await visit()).text).toBe('good')
    await eventually(() => expect(site.session.freeSlots).toBe(free - 1))
  })

  it('holds up its own visitor alone when it grants no window for a body', async () => {
    const noWindow = frame(SETTINGS, 0, 0, [0, 4, 0, 0, 0, 0])
    const { site, visit, devices } = await siteOf(() => {}, noWindow)
    const stream = openStream(await connectHttp2(site), { ':method': 'POST' }, false)
    stream.write(Buffer.alloc(4 * MIB))
    await eventually(() => expect(site.endpoint.traffic.active).toBe(1))
    await eventually(() => expect(devices[0]?.frames.at(-1)?.type).toBe(SETTINGS))
    expect((await visit()).text).toBe('good')
    expect(site.endpoint.streams.buffers.bytes).toBeLessThan(MIB)
    // What leaves before its settings have come has the window of everybody (RFC 9113 6.9.2).
    expect(contentBytes(devices[0])).toBeLessThanOrEqual(65_535)
    stream.close(8)
    await eventually(() => expect(site.endpoint.streams.buffers.bytes).toBe(0))
    await eventually(() => expect(site.endpoint.traffic.active).toBe(0))
  })

  it('gets a body as fast as its link takes it, whatever window it grants', async () => {
    const wide = frame(SETTINGS, 0, 0, [0, 4, 0, 255, 255, 255])
    const { site, visit, devices } = await siteOf((device) => {
      device.isSlow = true
      device.send(frame(WINDOW_UPDATE, 0, 0, uint32(15 * MIB)))
    }, wide)
    const stream = openStream(await connectHttp2(site), { ':method': 'POST' }, false)
    const answer = answerOf(stream)
    stream.end(Buffer.alloc(8 * MIB))
    const [device] = await eventually(() => {
      expect(contentBytes(devices[0])).toBeGreaterThan(200_000)
      return devices
    })
    // Time for what does not wait to go on.
    for (let n = 0; n < 50; n += 1) expect((await visit()).text).toBe('good')
    expect(site.endpoint.streams.buffers.bytes).toBeLessThan(2 * MIB)
    expect(device?.isEnded).toBe(false)
    if (device) device.isSlow = false
    await eventually(() => expect(contentBytes(device)).toBe(8 * MIB))
    device?.send(responseHead(1, END_STREAM))
    expect((await answer).status).toBe(200)
  })

  it('is told as one that is not there when it closes without a byte, as the SDK does then', async () => {
    const { visit } = await siteOf((it) => it.end(), null)
    expect((await visit()).headers['ngrok-error-code']).toBe('ERR_NGROK_8012')
    expect((await visit()).text).toBe('good')
  })

  it('has a value with a line break left out', async () => {
    const { visit } = await siteOf((it, id) =>
      it.send(
        responseHead(id, END_STREAM, [
          ['x-a', 'b\r\nx-c: d'],
          ['x-e', 'f'],
        ]),
      ),
    )
    const { status, headers } = await visit()
    expect([status, headers['x-a'], headers['x-c'], headers['x-e']]).toEqual([
      200,
      undefined,
      undefined,
      'f',
    ])
  })

  it('is asked again when it says that it has not looked at the request', async () => {
    const { visit, devices } = await siteOf((it, id) =>
      it.send(frame(RST_STREAM, 0, id, uint32(7))),
    )
    expect((await visit()).text).toBe('good')
    expect(devices).toHaveLength(2)
  })

  it.each<[string, (id: number) => Buffer]>([
    ['stream', (id) => frame(RST_STREAM, 0, id, uint32(7))],
    ['connection', () => frame(GOAWAY, 0, 0, EIGHT)],
  ])('is asked again with all of the body when it says so of the %s', async (_what, refusal) => {
    const { visit, devices } = await siteOf((it, id) => it.send(refusal(id)))
    const answer = await visit({ method: 'POST', body: Buffer.from('hello') })
    expect(answer.text).toBe('good')
    await eventually(() => expect(contentBytes(devices[1])).toBe(5))
  })

  it.each([
    ['GET', undefined, 'good'],
    ['PUT', 'hello', 'good'],
    ['POST', 'hello', 'ERR_GATEWAY_STALE_CONNECTION'],
    ['PUT', 'x'.repeat(70_000), 'ERR_GATEWAY_STALE_CONNECTION'],
  ])(
    'that ends a kept connection under a %s is asked again where it may be: %#',
    async (...row) => {
      const [method, text, says] = row
      const { visit, devices, site } = await siteOf((it, id) => {
        if (id > 1) it.end()
        else it.send(responseHead(id), frame(DATA, END_STREAM, id, Buffer.from('first')))
      })
      expect((await visit()).text).toBe('first')
      await eventually(() => expect(site.slots.busy).toBe(0))
      const body = text === undefined ? {} : { body: Buffer.from(text) }
      expect((await visit({ method, ...body })).text).toContain(says)
      expect(devices).toHaveLength(says === 'good' ? 2 : 1)
      if (says === 'good') {
        await eventually(() => expect(contentBytes(devices[1])).toBe(text?.length ?? 0))
      }
    },
  )

  it.each([0, 2, 8])('gets nothing more of a request that it resets with %d', async (code) => {
    const { site, devices, free } = await siteOf((it, id) => {
      it.send(frame(RST_STREAM, 0, id, uint32(code)))
    })
    const stream = openStream(await connectHttp2(site), { ':method': 'POST' }, false)
    stream.write('part')
    expect((await answerOf(stream)).status).toBe(502)
    await eventually(() => expect(site.session.freeSlots).toBe(free))
    expect(devices[0]?.frames.filter(({ type }) => type === DATA).length).toBeLessThan(2)
  })

  it('is asked for nothing more after a GOAWAY, and serves what it has', async () => {
    const { visit, devices } = await siteOf((it, id) => {
      it.send(frame(GOAWAY, 0, 0, Buffer.concat([uint32(id), uint32(0)])))
      it.send(responseHead(id), frame(DATA, END_STREAM, id, Buffer.from('last')))
    })
    expect((await visit()).text).toBe('last')
    expect((await visit()).text).toBe('good')
    expect(devices).toHaveLength(2)
    await eventually(() => expect(devices[0]?.isEnded).toBe(true))
  })

  it.each<[string, (it: FrameDevice) => void]>([
    ['says GOAWAY', (it) => it.send(frame(GOAWAY, 0, 0, EIGHT))],
    ['closes', (it) => it.end()],
    ['breaks the protocol', (it) => it.send(frame(DATA, 0, 99, [1]))],
    ['sends garbage', (it) => it.send(GARBAGE)],
  ])('is asked on another connection when it %s between two requests', async (_what, then) => {
    const { site, visit, devices, free } = await siteOf((it, id) =>
      it.send(responseHead(id), frame(DATA, END_STREAM, id, Buffer.from('first'))),
    )
    expect((await visit()).text).toBe('first')
    await eventually(() => expect(site.slots.busy).toBe(0))
    const [device] = devices
    if (device) then(device)
    await eventually(() => expect(device?.isEnded).toBe(true))
    expect((await visit()).text).toBe('good')
    await eventually(() => expect(site.session.freeSlots).toBe(free - 1))
  })

  it('may send settings, pings and credit between two requests', async () => {
    const { site, visit, devices } = await siteOf((it, id) => {
      const text = it.frames.filter(({ type }) => type === HEADERS).length
      it.send(responseHead(id), frame(DATA, END_STREAM, id, Buffer.from(`${text}`)))
    })
    expect((await visit()).text).toBe('1')
    await eventually(() => expect(site.slots.busy).toBe(0))
    const [device] = devices
    device?.send(SETTINGS_FRAME, frame(PING, 0, 0, EIGHT), frame(WINDOW_UPDATE, 0, 0, uint32(9)))
    await eventually(() =>
      expect(device?.frames.filter(({ type }) => type === PING)).toHaveLength(1),
    )
    expect((await visit()).text).toBe('2')
    expect(devices).toHaveLength(1)
  })
})

describe('a response of HTTP/2 that breaks off', () => {
  const head = (id: number, more: readonly (readonly [string, string])[] = []) =>
    Buffer.concat([responseHead(id, 0, more), frame(DATA, 0, id, Buffer.from('part'))])

  it.each<[string, Serve]>([
    ['by a reset', (it, id) => it.send(head(id), frame(RST_STREAM, 0, id, uint32(2)))],
    [
      'by a reset without an error',
      (it, id) => it.send(head(id), frame(RST_STREAM, 0, id, uint32(0))),
    ],
    ['by the end of the connection', (it, id) => it.send(head(id)) ?? it.end()],
    [
      'by a GOAWAY',
      (it, id) => it.send(head(id), frame(GOAWAY, 0, 0, Buffer.concat([uint32(0), uint32(1)]))),
    ],
    ['by garbage', (it, id) => it.send(head(id), GARBAGE)],
    [
      'below its length',
      (it, id) => it.send(head(id, [['content-length', '9']]), frame(DATA, END_STREAM, id)),
    ],
    [
      'above its length',
      (it, id) => it.send(head(id, [['content-length', '4']]), frame(DATA, END_STREAM, id, [1])),
    ],
    ['by trailers with a status', (it, id) => it.send(head(id), responseHead(id, END_STREAM))],
    [
      'by trailers without an end',
      (it, id) => it.send(head(id), frame(HEADERS, END_HEADERS, id, encodeFields([['x-a', 'b']]))),
    ],
    [
      'by trailers that are too large',
      (it, id) =>
        it.send(
          head(id),
          frame(
            HEADERS,
            END_HEADERS | END_STREAM,
            id,
            encodeFields(Array.from({ length: 100 }, (_, n) => [`x-${n}`, ''] as const)),
          ),
        ),
    ],
  ])('%s never looks whole', async (_how, serve) => {
    const { site, visit, free } = await siteOf(serve)
    const visitor = await connectHttp2(site)
    const { status, code, trailers } = await answerOf(openStream(visitor, { te: 'trailers' }))
    // An end that comes right behind it is there before the response has begun.
    // Behind another node the client has what the length says, and no more.
    if (!isBehindNode()) expect(status === 502 || code !== 0).toBe(true)
    expect(trailers).toEqual({})
    expect((await visit()).text).toBe('good')
    await eventually(() => expect(site.session.freeSlots).toBe(free - 1))
  })

  it('is whole when its service closes right behind it, though the visitor is slow', async () => {
    const body = Buffer.alloc(200_000, 'x')
    const { site } = await siteOf((it, id) => {
      const pieces = Array.from({ length: 20 }, (_, n) =>
        frame(DATA, n === 19 ? END_STREAM : 0, id, body.subarray(n * 10_000, (n + 1) * 10_000)),
      )
      it.send(responseHead(id), ...pieces)
      it.end()
    })
    const visitor = await connectHttp2(site, { settings: { initialWindowSize: 1_000 } })
    const { code, body: got } = await answerOf(openStream(visitor))
    expect([code, got.equals(body)]).toEqual([0, true])
  })
})

describe('a device that sends without end', () => {
  it.each<[string, (id: number) => (n: number) => Buffer]>([
    ['PING', () => () => times(100, () => frame(PING, 0, 0, EIGHT))],
    ['SETTINGS', () => () => times(100, () => frame(SETTINGS, 0, 0, [0, 3, 0, 0, 0, 9]))],
    ['PRIORITY', (id) => () => times(1_000, () => frame(PRIORITY, 0, id, [0, 0, 0, 3, 9]))],
    [
      'GOAWAY',
      (id) => () => times(1_000, () => frame(GOAWAY, 0, 0, Buffer.concat([uint32(id), uint32(0)]))),
    ],
    ['RST_STREAM', (id) => () => times(1_000, () => frame(RST_STREAM, 0, id, uint32(8)))],
    ['frames of an unknown type', () => () => frame(0x16, 0, 0, Buffer.alloc(16_000))],
    ['WINDOW_UPDATE', () => () => times(1_000, () => frame(WINDOW_UPDATE, 0, 0, uint32(1)))],
    [
      'empty DATA',
      (id) => (n) => (n === 0 ? responseHead(id) : times(1_000, () => frame(DATA, 0, id))),
    ],
    [
      'a head without an end',
      (id) => (n) =>
        n === 0
          ? frame(HEADERS, END_STREAM, id, STATUS)
          : frame(CONTINUATION, 0, id, encodeFields([['x-a', 'b'.repeat(8_000)]])),
    ],
    [
      'trailers without an end',
      (id) => (n) =>
        n === 0
          ? Buffer.concat([responseHead(id), frame(HEADERS, END_STREAM, id)])
          : frame(CONTINUATION, 0, id, encodeFields([['x-a', 'b'.repeat(8_000)]])),
    ],
    [
      'heads that the table makes large',
      (id) => (n) =>
        frame(
          HEADERS,
          END_HEADERS,
          id,
          Buffer.concat([STATUS, n === 0 ? BOMB_SEED : Buffer.alloc(8_000, 0xbe)]),
        ),
    ],
  ])('%s is cut off', async (_what, pieces) => {
    let sent: Promise<number> | undefined
    const { site, visit } = await siteOf((it, id) => {
      sent = flood(it, pieces(id))
    })
    // With a response that has begun, the visitor is broken off.
    const answer = await visit().catch(() => undefined)
    expect(answer?.status ?? 502).toBe(502)
    expect(await sent).toBeLessThan(MAX_BYTES)
    expect((await visit()).text).toBe('good')
    await eventually(() => expect(site.endpoint.streams.buffers.bytes).toBe(0))
  })

  it('is cut off between two requests, too', async () => {
    const { site, visit, devices } = await siteOf((it, id) => it.send(responseHead(id, END_STREAM)))
    expect((await visit()).status).toBe(200)
    await eventually(() => expect(site.slots.busy).toBe(0))
    const [device] = devices
    if (!device) throw new Error('no device')
    expect(await flood(device, () => times(100, () => frame(PING, 0, 0, EIGHT)))).toBeLessThan(MIB)
  })

  it('gives a response of any length, and all that it wants to say beside it', async () => {
    const pieces = 600
    const piece = Buffer.alloc(10_000, 'x')
    const { site } = await siteOf(async (it, id) => {
      it.send(responseHead(id))
      for (let n = 1; n <= pieces; n += 1) {
        it.send(frame(DATA, n === pieces ? END_STREAM : 0, id, piece), frame(PING, 0, 0, EIGHT))
        // The window of the stream is what there is.
        const credit = () =>
          it.frames
            .filter(({ type, stream }) => type === WINDOW_UPDATE && stream === id)
            .reduce((sum, { payload }) => sum + payload.readUInt32BE(), 524_288)
        while ((n + 1) * piece.length > credit()) await nextTurn()
      }
    })
    const visitor = await connectHttp2(site)
    const { body, code } = await answerOf(openStream(visitor))
    expect([body.length, code]).toEqual([pieces * piece.length, 0])
  })
})
