import { once } from 'node:events'
import { createServer } from 'node:http'
import type { AddressInfo } from 'node:net'
import { setImmediate } from 'node:timers/promises'
import { describe, expect, it, onTestFinished } from 'vitest'
import { INGRESS_LIMITS } from '../../../../src/gateway/ingress/common/ingress-context.ts'
import { FLOOD_LIMITS } from '../../../../src/gateway/ingress/syntax/flood-guard.ts'
import { eventually } from '../../../helpers/eventually.ts'
import {
  type Flood,
  idleFloods,
  madeReset,
  rapidReset,
  times,
} from '../../../helpers/http2-floods.ts'
import {
  ACK,
  DATA,
  END_STREAM,
  FrameClient,
  frame,
  GET,
  GOAWAY,
  HEADERS,
  head,
  PING,
  POST,
  RST_STREAM,
  SETTINGS,
  statusOf,
  uint32,
} from '../../../helpers/http2-frames.ts'
import { answerOf, connectHttp2, openStream } from '../../../helpers/http2-visitor.ts'
import { type IngressSiteOptions, startIngressSite } from '../../../helpers/ingress-site.ts'
import { ManualClock } from '../../../helpers/manual-clock.ts'
import { startScriptedService } from '../../../helpers/raw-http.ts'

const OK = 'HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok'
const EIGHT = Buffer.alloc(8)
const MIB = 1_048_576
const INTERNAL_ERROR = 2
const CANCEL = 8
/** What time forgives meanwhile. */
const FORGIVEN = 50
/** What an attack may send before it is given up as not bounded at all. */
const MAX_BYTES = 60 * MIB

async function siteOf(options: Partial<IngressSiteOptions> = {}) {
  const service = await startScriptedService(OK)
  return await startIngressSite({ service: service.port, ...options })
}

/** Sends one piece after the other until the connection is closed; answers how many bytes that took. */
async function flood(client: FrameClient, piece: Flood): Promise<number> {
  let sent = 0
  for (let n = 0; !client.isClosed && sent < MAX_BYTES; n += 1) {
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

describe('a connection that measures its path', () => {
  it('may send a PING with each piece of an upload, more than would end one that only does that', async () => {
    const pieces = 3 * Math.ceil(FLOOD_LIMITS.idleBytes / FLOOD_LIMITS.pingBytes)
    const service = createServer((request, response) => {
      let bytes = 0
      request.on('data', (chunk) => {
        bytes += chunk.length
      })
      request.on('end', () => response.setHeader('x-bytes', bytes).end())
    })
    service.listen(0, '127.0.0.1')
    await once(service, 'listening')
    onTestFinished(() => void service.close())
    const site = await startIngressSite({ service: (service.address() as AddressInfo).port })
    const client = new FrameClient(site).begin()
    client.send(head(1, [...POST, ['content-length', `${pieces}`]], 0))
    for (let n = 0; n < pieces && !client.isClosed; n += 1) {
      client.send(frame(DATA, n === pieces - 1 ? END_STREAM : 0, 1, [1]), frame(PING, 0, 0, EIGHT))
      // Each by itself: what comes together is one piece. A PING is answered behind it.
      client.frames.length = 0
      while (!client.frames.some(({ type }) => type === PING) && !client.isClosed)
        await setImmediate()
    }
    const answer = await client.receive(({ type, stream }) => type === HEADERS && stream === 1)
    expect(answer === 'closed' ? 0 : statusOf(answer.payload)).toBe(200)
    expect(await client.isAlive()).toBe(true)
  })
})

describe('a connection that only costs', () => {
  it('ends after a hundred streams that it resets, of which the device sees no more', async () => {
    const site = await siteOf({ serve: () => {} })
    const client = new FrameClient(site).begin()
    await client.isAlive()
    await flood(client, rapidReset(GET))
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
    const inOneRead = 200
    await flood(client, madeReset(GET))
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

  it.each(Object.entries(idleFloods(GET)))(
    'ends when it sends %s without end',
    async (_what, piece) => {
      const site = await siteOf()
      const client = new FrameClient(site).begin()
      await client.isAlive()
      expect(await flood(client, piece)).toBeLessThan(MAX_BYTES)
      expect(site.endpoint.traffic.requests).toBeLessThanOrEqual(1)
    },
  )

  it('ends when Node has given it up and says nothing', async () => {
    const site = await siteOf({ limits: { keepAliveMs: 50, sweepMs: 10, lingerMs: 20 } })
    const client = new FrameClient(site).begin()
    client.send(head(1))
    await client.receive(({ type }) => type === DATA)
    client.send(times(10, () => frame(DATA, 0, 1, [1])))
    await client.closed()
  })

  describe.each([
    // Before there is an answer, and when there will be none.
    ['a frame behind the end of its stream', [head(1), frame(DATA, 0, 1, [1])], true],
    ['such a frame that nothing follows', [head(1), frame(DATA, 0, 1, [1])], false],
    ['settings of a stream', [head(1), frame(SETTINGS, 0, 1)], false],
    ['a frame that is too large', [Buffer.alloc(1_000, 0xff)], false],
  ] as const)('that sent %s', (_what, bytes, isAnswered) => {
    it.each(['stays', 'leaves'] as const)(
      'ends soon, also when Node says nothing and the client %s',
      async (what) => {
        const hourMs = 3_600_000
        const site = await siteOf({
          limits: { sweepMs: 10, headMs: hourMs, keepAliveMs: hourMs },
          ...(!isAnswered && { serve: () => {} }),
        })
        const client = new FrameClient(site).begin()
        client.send(...bytes)
        await client.receive(({ type }) => type === GOAWAY)
        if (what === 'leaves') client.socket.end()
        await client.closed()
      },
    )
  })

  it('is asked once whether it is alive, when it was heard and is silent', async () => {
    const clock = new ManualClock()
    const site = await siteOf({ clock })
    const client = new FrameClient(site).begin()
    expect(await client.isAlive()).toBe(true)
    const asked = () => client.frames.filter(({ type, flags }) => type === PING && flags === 0)
    const sweep = async () => {
      await clock.advance(INGRESS_LIMITS.sweepMs)
      await setImmediate()
    }
    while (asked().length === 0) await sweep()
    client.send(frame(PING, ACK, 0, asked()[0]?.payload))
    for (let n = 0; n < 10; n += 1) await sweep()
    expect(asked()).toHaveLength(1)
    expect(await client.isAlive()).toBe(true)
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

/** Sends an upload of tiny frames, a million at most. */
async function sendTinyUntil(client: FrameClient, isOver: () => boolean): Promise<void> {
  client.send(head(1, POST, 0))
  for (let n = 0; n < 1_000 && !isOver() && !client.isClosed; n += 1) {
    client.send(times(1_000, () => frame(DATA, 0, 1, [1])))
    while (client.socket.writableNeedDrain && !isOver() && !client.isClosed) await setImmediate()
  }
}

/** Counts the rests of connections: nothing else waits for 10 ms, or for a part of a millisecond. */
class RestClock extends ManualClock {
  rests = 0

  override sleep(ms: number, signal?: AbortSignal): Promise<void> {
    if (ms === 10 || !Number.isInteger(ms)) this.rests += 1
    return super.sleep(ms, signal)
  }
}

describe('a connection with tiny pieces of content', () => {
  /** A device that takes everything and counts it. */
  async function siteThatCounts(options: Partial<IngressSiteOptions> = {}) {
    const taken = { bytes: 0, pieces: 0 }
    const site = await siteOf({
      serve: (stream) => {
        stream.handler = {
          onData: ({ length }) => {
            taken.bytes += length
            taken.pieces += 1
          },
          onDrain() {},
          onEnd() {},
          onClose() {},
        }
      },
      ...options,
    })
    return { site, taken }
  }

  it('hands on those that come together as few', async () => {
    const { site, taken } = await siteThatCounts()
    const client = new FrameClient(site).begin()
    const pieces = 1_000
    client.send(
      head(1, POST, 0),
      times(pieces, () => frame(DATA, 0, 1, [1])),
    )
    await eventually(() => expect(taken.bytes).toBeGreaterThan(pieces))
    await client.isAlive()
    expect(taken.pieces).toBeLessThan(pieces / 4)
  })

  it('is not read while it has sent more than its share, nor is another one of its address', async () => {
    const clock = new RestClock()
    const { site } = await siteThatCounts({ clock })
    const client = new FrameClient(site).begin()
    await sendTinyUntil(client, () => clock.rests > 0)
    expect(clock.rests).toBe(1)
    const other = new FrameClient(site).begin()
    const stranger = new FrameClient(site, '127.0.0.99').begin()
    expect(await stranger.isAlive()).toBe(true)
    expect([client.isClosed, other.isClosed, other.frames]).toEqual([false, false, []])
    const read = other.isAlive()
    await clock.advance(6_000)
    expect(await read).toBe(true)
  })

  it('counts those that wait because nobody takes them', async () => {
    const clock = new RestClock()
    const { site } = await siteThatCounts({ clock })
    // Its device is away: the upload waits from the first piece on.
    site.registry.suspend(site.endpoint, { credentialId: 'cr_test', deviceId: 'd' })
    const client = new FrameClient(site).begin()
    await sendTinyUntil(client, () => clock.rests > 0)
    expect(clock.rests).toBe(1)
    expect(client.isClosed).toBe(false)
  })
})

describe('a connection that works', () => {
  it('may send pieces of any size, in any number at once, and all of it arrives in order', async () => {
    const sizes = Array.from({ length: 400 }, (_, n) => (n % 7 === 0 ? 3_000 : 1 + (n % 40)))
    const parts = sizes.map((size, n) => Buffer.alloc(size, n % 251))
    const chunks: Buffer[] = []
    const service = createServer((request, response) => {
      request.on('data', (chunk) => chunks.push(chunk)).on('end', () => response.end())
    })
    service.listen(0, '127.0.0.1')
    await once(service, 'listening')
    onTestFinished(() => void service.close())
    const site = await startIngressSite({ service: (service.address() as AddressInfo).port })
    const client = new FrameClient(site).begin()
    client.send(
      head(1, POST, 0),
      times(parts.length, (n) => frame(DATA, 0, 1, parts[n])),
      frame(DATA, END_STREAM, 1),
    )
    const answer = await client.receive(({ type, stream }) => type === HEADERS && stream === 1)
    expect(answer === 'closed' ? 0 : statusOf(answer.payload)).toBe(200)
    expect(Buffer.concat(chunks).equals(Buffer.concat(parts))).toBe(true)
  })

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
