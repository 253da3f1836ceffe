import { setImmediate } from 'node:timers/promises'
import { describe, expect, it } from 'vitest'
import { FLOOD_LIMITS } from '../../../../src/gateway/ingress/http2/wire/flood-guard.ts'
import { eventually } from '../../../helpers/eventually.ts'
import {
  CONTINUATION,
  DATA,
  END_HEADERS,
  END_STREAM,
  encodeFields,
  FrameClient,
  frame,
  GET,
  GOAWAY,
  HEADERS,
  head,
  PING,
  POST,
  PRIORITY,
  RST_STREAM,
  SETTINGS,
  uint32,
  WINDOW_UPDATE,
} from '../../../helpers/http2-frames.ts'
import { answerOf, connectHttp2, openStream } from '../../../helpers/http2-visitor.ts'
import { type IngressSiteOptions, startIngressSite } from '../../../helpers/ingress-site.ts'
import { startScriptedService } from '../../../helpers/raw-http.ts'

const OK = 'HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok'
const EIGHT = Buffer.alloc(8)
const MIB = 1_048_576
const INTERNAL_ERROR = 2
const CANCEL = 8
/** What time forgives meanwhile. */
const FORGIVEN = 50
/** What an attack may send before it is given up as not bounded at all. */
const MOST_BYTES = 60 * MIB

async function siteOf(options: Partial<IngressSiteOptions> = {}) {
  const service = await startScriptedService(OK)
  return await startIngressSite({ service: service.port, ...options })
}

/** Sends one piece after the other until the connection is closed; answers how many bytes that took. */
async function flood(client: FrameClient, piece: (n: number) => Buffer): Promise<number> {
  let sent = 0
  for (let n = 0; !client.isClosed && sent < MOST_BYTES; n += 1) {
    const bytes = piece(n)
    sent += bytes.length
    if (!client.send(bytes) || n % 64 === 0) await setImmediate()
    while (client.socket.writableNeedDrain && !client.isClosed) await setImmediate()
  }
  if (!client.isClosed) throw new Error('the connection is still open')
  return sent
}

const framesOf = ({ frames }: FrameClient, id: number) =>
  frames.filter(({ stream }) => stream === id)

/** Resets each stream when its response has begun, and opens the next with the same write. */
async function breakEach(code: number, most: number) {
  const service = await startScriptedService('HTTP/1.1 200 OK\r\nContent-Length: 9\r\n\r\nok')
  const site = await startIngressSite({ service: service.port })
  const client = new FrameClient(site).begin()
  let last = 1
  client.send(head(last))
  for (let n = 0; n < most; n += 1) {
    const isAnswered = () => framesOf(client, last).length > 0
    while (!isAnswered() && !client.isClosed) await setImmediate()
    if (client.isClosed) break
    client.send(head(last + 2), frame(RST_STREAM, 0, last, uint32(code)))
    last += 2
  }
  return { client, last }
}

const times = (count: number, make: (n: number) => Buffer) =>
  Buffer.concat(Array.from({ length: count }, (_, n) => make(n)))

/** A table entry of 3.9 kB, then heads that name it thousands of times. */
const BOMB_SEED = Buffer.concat([
  Buffer.from([0x40, 1, 0x78]),
  Buffer.from([0x7f, 0xbd, 0x1d]),
  Buffer.alloc(127 + 0x3d + 0x1d * 128, 'b'),
])
const bomb = (n: number) =>
  n === 0
    ? frame(HEADERS, END_STREAM | END_HEADERS, 1, Buffer.concat([encodeFields(GET), BOMB_SEED]))
    : frame(
        HEADERS,
        END_STREAM | END_HEADERS,
        1 + 2 * n,
        Buffer.concat([encodeFields(GET), Buffer.alloc(8_000, 0xbe)]),
      )

describe('a connection that only costs', () => {
  it('ends after a hundred streams that it resets, of which the device sees no more', async () => {
    const site = await siteOf({ serve: () => {} })
    const client = new FrameClient(site).begin()
    await client.isAlive()
    await flood(client, (n) =>
      Buffer.concat([head(1 + 2 * n), frame(RST_STREAM, 0, 1 + 2 * n, uint32(8))]),
    )
    expect(client.frames.find(({ type }) => type === GOAWAY)?.payload.readUInt32BE(4)).toBe(11)
    expect(site.endpoint.traffic.requests).toBeLessThan(FLOOD_LIMITS.brokenStreams + FORGIVEN)
    await eventually(() => expect(site.endpoint.traffic.active).toBe(0))
  })

  it('ends after a hundred that it breaks when they are answered, and nothing follows on them', async () => {
    const { client, last } = await breakEach(INTERNAL_ERROR, 400)
    expect(client.frames.find(({ type }) => type === GOAWAY)?.payload.readUInt32BE(4)).toBe(11)
    // Node writes empty frames of a closed stream for ever when its session ends at a wrong moment.
    expect(framesOf(client, last - 2).length).toBeLessThan(3)
    expect(client.isClosed).toBe(true)
  })

  it('stays when what it gives up has been answered', async () => {
    const { client } = await breakEach(CANCEL, 2 * FLOOD_LIMITS.brokenStreams)
    expect(await client.isAlive()).toBe(true)
  })

  it('ends after a hundred streams that it makes the gateway reset', async () => {
    const site = await siteOf({ serve: () => {} })
    const client = new FrameClient(site).begin()
    await client.isAlive()
    const short = [...POST, ['content-length', '1'] as const]
    const inOneRead = 200
    await flood(client, (n) =>
      Buffer.concat([head(1 + 2 * n, short, 0), frame(DATA, END_STREAM, 1 + 2 * n, [1, 2])]),
    )
    expect(site.endpoint.traffic.requests).toBeLessThan(FLOOD_LIMITS.brokenStreams + inOneRead)
    await eventually(() => expect(site.endpoint.traffic.active).toBe(0))
  })

  it('ends when it is always answered with an error', async () => {
    const site = await siteOf()
    const client = new FrameClient(site).begin()
    await client.isAlive()
    const misdirected = GET.map((field) =>
      field[0] === ':authority' ? (['host', 'x.test'] as const) : field,
    )
    let streams = 0
    await flood(client, (n) => {
      streams += 1
      return head(1 + 2 * n, misdirected)
    })
    expect(streams).toBeGreaterThan(FLOOD_LIMITS.brokenStreams)
  })

  it.each<[string, (n: number) => Buffer]>([
    ['PING', () => times(100, () => frame(PING, 0, 0, EIGHT))],
    ['SETTINGS', () => times(100, () => frame(SETTINGS, 0, 0, [0, 3, 0, 0, 0, 9]))],
    ['PRIORITY', () => times(1_000, () => frame(PRIORITY, 0, 9, [0, 0, 0, 3, 9]))],
    ['frames of an unknown type', () => frame(0x16, 0, 0, Buffer.alloc(16_000))],
    ['WINDOW_UPDATE', () => times(1_000, () => frame(WINDOW_UPDATE, 0, 0, uint32(1)))],
    [
      'empty DATA',
      (n) =>
        Buffer.concat([
          n === 0 ? head(1, POST, 0) : Buffer.alloc(0),
          times(1_000, () => frame(DATA, 0, 1)),
        ]),
    ],
    [
      'a head without an end',
      (n) =>
        n === 0
          ? frame(HEADERS, END_STREAM, 1, encodeFields(GET))
          : frame(CONTINUATION, 0, 1, encodeFields([['x-a', 'b'.repeat(8_000)]])),
    ],
    ['heads that the table makes large', bomb],
  ])('ends when it sends %s without end', async (_what, piece) => {
    const site = await siteOf()
    const client = new FrameClient(site).begin()
    await client.isAlive()
    expect(await flood(client, piece)).toBeLessThan(MOST_BYTES)
    expect(site.endpoint.traffic.requests).toBeLessThanOrEqual(1)
  })

  it('ends when Node has given it up and says nothing', async () => {
    const site = await siteOf({ limits: { keepAliveMs: 50, sweepMs: 10, lingerMs: 20 } })
    const client = new FrameClient(site).begin()
    client.send(head(1))
    await client.receive(({ type }) => type === DATA)
    client.send(times(10, () => frame(DATA, 0, 1, [1])))
    await client.closed()
  })

  it('ends when it takes nothing of what it asks for, and holds no more than the windows', async () => {
    const body = 64 * MIB
    const limits = { silenceMs: 400, sweepMs: 20 }
    const site = await siteOf({
      limits,
      serve: (stream) => {
        const piece = Buffer.alloc(16_000)
        const fill = () => {
          while (stream.write(piece)) {}
        }
        stream.handler = {
          onData: () => {
            stream.write(Buffer.from(`HTTP/1.1 200 OK\r\nContent-Length: ${body}\r\n\r\n`))
            fill()
          },
          onDrain: fill,
          onEnd: () => stream.end(),
          onClose() {},
        }
      },
    })
    const client = new FrameClient(site).begin([[4, 0]])
    client.send(times(100, (n) => head(1 + 2 * n)))
    await eventually(() => expect(site.endpoint.traffic.requests).toBeGreaterThan(5))
    await eventually(() => expect(site.endpoint.traffic.active).toBe(0))
    expect(site.endpoint.traffic.bytesOut).toBeLessThan(64 * MIB)
  })
})

describe('a connection that works', () => {
  it('may cancel what it has asked for, now and then', async () => {
    const site = await siteOf()
    const session = await connectHttp2(site)
    for (let n = 0; n < 150; n += 1) {
      const stream = openStream(session)
      if (n % 2 === 0) stream.close(8)
      await answerOf(stream)
    }
    expect(session.destroyed).toBe(false)
  })

  it('may send more than a flood does', async () => {
    const site = await siteOf()
    const session = await connectHttp2(site)
    const stream = openStream(session, { ':method': 'POST', 'content-length': 4 * MIB }, false)
    stream.end(Buffer.alloc(4 * MIB))
    expect((await answerOf(stream)).status).toBe(200)
    await eventually(() => expect(session.destroyed).toBe(false))
  })
})
