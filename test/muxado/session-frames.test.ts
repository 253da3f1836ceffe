import { describe, expect, it } from 'vitest'
import { ErrorCode } from '../../src/muxado/error-code.ts'
import { FIN, SYN } from '../../src/muxado/frame-codec.ts'
import { DEAF } from '../../src/muxado/stream.ts'
import { captureLog } from '../helpers/captured-log.ts'
import { turns } from '../helpers/frame-peer.ts'
import { framedSession } from '../helpers/framed-session.ts'
import { RecordingHandler } from '../helpers/recording-handler.ts'

const IDLE_STREAM_ID = 0x7fff_ffff

describe('Session', () => {
  it.each([
    ['DATA on a stream that was never opened', '000000 10 00000003', 1],
    ['DATA on a stream of its own that was never opened', '000000 10 00000002', 1],
    ['SYN on an id that is not the peer’s', '000000 12 00000004', 1],
    ['SYN on an open stream', '000000 12 00000001', 1],
    ['an unknown frame', '000000 50 00000001', 1],
    ['a WNDINC of the wrong length', '000002 20 00000001', 8],
  ])('ends at once with %s', async (_name, hex, code) => {
    const { peer, accepted, reason } = await framedSession()
    peer.data(1, 'open', SYN)
    peer.raw(hex)
    peer.data(1, 'too late')
    await turns()
    expect(reason()?.code).toBe(code)
    expect(peer.only('goAway')).toMatchObject([{ lastStreamId: 1, code }])
    expect(accepted[0]?.handler.events).toEqual(['data open', `close ${reason()?.reason}`])
  })

  it('refuses an id below one that was opened', async () => {
    const { peer, reason } = await framedSession()
    peer.data(9, '', SYN)
    peer.data(7, '', SYN)
    await turns()
    expect(reason()?.reason).toBe('protocol-violation')
  })

  it('keeps the first of several reasons', async () => {
    const { session, peer, transport, reason } = await framedSession()
    peer.goAway(0, ErrorCode.none, 'first')
    peer.raw('000000 50 00000001')
    await turns()
    await session.goAway(ErrorCode.internal, 'third')
    transport.destroy()
    await turns()
    expect(reason()).toMatchObject({ reason: 'remote-gone-away', code: 0, message: 'first' })
  })

  it('closes the transport though the peer does not read its GOAWAY', async () => {
    const { session, transport } = await framedSession()
    transport.pause()
    await session.goAway(ErrorCode.none, 'bye')
    expect(await session.closed).toMatchObject({ code: ErrorCode.none })
  })

  it('closes without a GOAWAY, after what was written, when it says no goodbye', async () => {
    const { session, peer, transport, accepted } = await framedSession({ saysGoodbye: false })
    peer.data(1, 'ask', SYN)
    await turns()
    accepted[0]?.stream.write(Buffer.from('answer'))
    await session.goAway(ErrorCode.none, 'bye')
    await turns()
    expect(peer.only('goAway')).toEqual([])
    expect(peer.only('data').map(({ body }) => body)).toEqual(['answer'])
    expect(transport.readableEnded || transport.destroyed).toBe(true)
  })

  it('closes at once when it says no goodbye, though the peer does not hang up', async () => {
    const { session, transport } = await framedSession({ saysGoodbye: false })
    transport.pause()
    let isClosed = false
    void session.goAway(ErrorCode.none, 'bye').then(() => {
      isClosed = true
    })
    await turns()
    expect(isClosed).toBe(true)
  })

  it('accepts nothing from the chunk in which it went away', async () => {
    const accepted: number[] = []
    const { session, peer } = await framedSession({
      accept: (stream) => {
        accepted.push(stream.id)
        void session.goAway(ErrorCode.none, 'enough')
      },
    })
    peer.raw('000000 12 00000001  000000 12 00000003')
    await turns()
    expect(accepted).toEqual([1])
    expect(peer.only('goAway')).toMatchObject([{ lastStreamId: 1 }])
  })

  it('opens even ids as a server and odd ids as a client', async () => {
    const server = await framedSession()
    const client = await framedSession({ role: 'client' })
    const ids = [server, client].map(({ session }) =>
      [1, 2, 3].map(() => session.open(new RecordingHandler()).id),
    )
    expect(ids).toEqual([
      [2, 4, 6],
      [1, 3, 5],
    ])
  })

  it('lets the first bytes ride in the SYN frame', async () => {
    const { session, peer } = await framedSession()
    session.open(new RecordingHandler(), Buffer.from('head'))
    await turns()
    expect(peer.frames).toEqual([{ type: 'data', streamId: 2, body: 'head', flags: SYN }])
  })

  it('sends first bytes beyond one frame behind the SYN', async () => {
    const { session, peer } = await framedSession()
    session.open(new RecordingHandler(), Buffer.alloc(20_000, 'h'))
    await turns()
    expect(peer.only('data').map(({ body, flags }) => [body.length, flags])).toEqual([
      [16_376, SYN],
      [3_624, 0],
    ])
  })

  it('sends no large SYN frames into a full transport, and no ids out of order', async () => {
    const { session, peer, transport } = await framedSession({ role: 'client' })
    transport.pause()
    session.open(new RecordingHandler(), Buffer.alloc(16_000))
    for (let id = 0; id < 100; id++) session.open(new RecordingHandler(), Buffer.alloc(16_000, 'b'))
    transport.resume()
    await turns(200)
    const opened = peer.only('data').filter(({ flags }) => flags === SYN)
    expect(opened.map(({ streamId }) => streamId)).toEqual(opened.map((_, index) => 2 * index + 1))
    expect(opened.at(-1)?.body).toHaveLength(1_024)
    const sent = peer.only('data').filter(({ streamId }) => streamId === 2 * 100 + 1)
    expect(sent.reduce((sum, { body }) => sum + body.length, 0)).toBe(16_000)
  })

  it('ends itself when its own side fails', async () => {
    const { peer, reason } = await framedSession({
      trace: (line) => {
        if (line.startsWith('received')) throw new Error('trace failed')
      },
    })
    peer.data(1, 'x', SYN)
    await turns()
    expect(reason()).toMatchObject({ reason: 'internal', cause: { message: 'trace failed' } })
  })

  it('goes away when its stream ids are used up', async () => {
    const { session, peer, reason } = await framedSession({ limits: { lastStreamId: 4 } })
    session.open(new RecordingHandler())
    expect(session.freeSlots).toBe(447)
    session.open(new RecordingHandler())
    expect(session.freeSlots).toBe(0)
    expect(() => session.open(new RecordingHandler())).toThrow(
      expect.objectContaining({ reason: 'streams-exhausted' }),
    )
    await turns()
    expect(reason()?.reason).toBe('streams-exhausted')
    expect(peer.only('goAway')).toMatchObject([{ code: ErrorCode.streamsExhausted }])
  })

  it('throws its reason when it is asked for a stream after its end', async () => {
    const { session } = await framedSession()
    await session.goAway(ErrorCode.none, 'bye')
    expect(() => session.open(new RecordingHandler())).toThrow('bye')
  })

  it('answers nothing for streams that are gone', async () => {
    const { peer, accepted, reason } = await framedSession({ role: 'client' })
    peer.data(2, 'x', SYN | FIN)
    await turns()
    accepted[0]?.stream.end()
    peer.data(2, 'late')
    peer.windowIncrement(2, 5)
    peer.windowIncrement(IDLE_STREAM_ID, 1)
    peer.reset(2, 4)
    await turns()
    expect(reason()).toBeUndefined()
    expect(peer.frames).toEqual([{ type: 'data', streamId: 2, body: '', flags: FIN }])
    expect(accepted[0]?.handler.events).toEqual(['data x', 'end', 'close'])
  })
})

describe('the streams of a session', () => {
  it('are refused one by one past the limit, without hurting the others', async () => {
    const { peer, accepted, reason } = await framedSession()
    for (let id = 1; id <= 2 * 513; id += 2) peer.data(id, 'x', SYN)
    peer.data(2 * 513 - 1, 'more of the refused one')
    await turns(60)
    expect(accepted).toHaveLength(512)
    expect(peer.only('reset')).toEqual([
      { type: 'reset', streamId: 1_025, code: ErrorCode.streamRefused },
    ])
    peer.data(1, 'still here')
    await turns()
    expect(accepted[0]?.handler.events).toEqual(['data x', 'data still here'])
    expect(reason()).toBeUndefined()
  })

  it('are opened up to 448, those of the peer counted in', async () => {
    const { session, peer, reason } = await framedSession()
    for (let id = 1; id <= 20; id += 2) peer.data(id, 'x', SYN)
    await turns()
    expect(session.freeSlots).toBe(438)
    for (let count = 0; count < 438; count++) session.open(new RecordingHandler())
    expect(() => session.open(new RecordingHandler())).toThrow(
      expect.objectContaining({ reason: 'streams-exhausted' }),
    )
    await turns()
    expect(reason()).toBeUndefined()
  })

  it('queue for a free slot, first come first served', async () => {
    const { session, peer } = await framedSession({ limits: { openStreams: 2 } })
    const streams = [session.open(new RecordingHandler()), session.open(new RecordingHandler())]
    const opened: string[] = []
    for (const name of ['first', 'second', 'third']) {
      session.whenFree(() => {
        session.open(new RecordingHandler())
        opened.push(name)
      })
    }
    expect(opened).toEqual([])
    for (const stream of streams) {
      stream.end()
      peer.data(stream.id, '', FIN)
      await turns()
    }
    expect(opened).toEqual(['first', 'second'])
  })

  it('offer a slot that a waiter does not take to the next one', async () => {
    const { session } = await framedSession({ limits: { openStreams: 1 } })
    const stream = session.open(new RecordingHandler())
    const called: string[] = []
    session.whenFree(() => called.push('gave up'))
    session.whenFree(() => {
      called.push('throws')
      throw new Error('waiter')
    })
    session.whenFree(() => called.push('still wants'))
    stream.reset(ErrorCode.streamCancelled)
    expect(called).toEqual(['gave up', 'throws', 'still wants'])
    session.whenFree(() => called.push('at once'))
    expect(called.at(-1)).toBe('at once')
  })

  it('do not call who waits once the session has ended', async () => {
    const { session } = await framedSession({ limits: { openStreams: 1 } })
    session.open(new RecordingHandler())
    const called: string[] = []
    session.whenFree(() => called.push('before the end'))
    await session.goAway(ErrorCode.none, 'bye')
    session.whenFree(() => called.push('after the end'))
    expect(called).toEqual([])
  })

  it.each(['onData', 'onEnd', 'onDrain'] as const)(
    'pay alone for a handler that throws in %s',
    async (name) => {
      const { log, lines } = captureLog()
      const { session, peer, reason } = await framedSession({ log })
      const handler = Object.assign(new RecordingHandler(), {
        [name]() {
          throw new Error('owner failed')
        },
      })
      const stream = session.open(handler)
      const other = new RecordingHandler()
      session.open(other)
      stream.write(Buffer.alloc(300_000))
      peer.windowIncrement(2, 100_000)
      peer.data(2, 'x', FIN)
      peer.data(4, 'fine')
      await turns()
      expect(handler.error).toMatchObject({
        reason: 'handler-failed',
        code: ErrorCode.internal,
        cause: { message: 'owner failed' },
      })
      expect(peer.only('reset')).toMatchObject([{ streamId: 2, code: ErrorCode.internal }])
      expect(other.events).toEqual(['data fine'])
      expect(reason()).toBeUndefined()
      expect(lines).toMatchObject([{ err: { message: 'owner failed' } }])
    },
  )

  it('pay alone for an accept or an onClose that throws', async () => {
    const { log, lines } = captureLog()
    const accepted = new RecordingHandler()
    const { session, peer, reason } = await framedSession({
      log,
      accept: (stream) => {
        stream.handler = accepted
        throw new Error('accept failed')
      },
    })
    const broken = Object.assign(new RecordingHandler(), {
      onClose: () => {
        throw new Error('close failed')
      },
    })
    const other = new RecordingHandler()
    session.open(broken)
    session.open(other)
    peer.data(1, 'x', SYN)
    peer.reset(2, 7)
    await turns()
    expect(peer.only('reset')).toMatchObject([{ streamId: 1, code: ErrorCode.internal }])
    expect(accepted.events).toEqual(['close handler-failed'])
    expect(reason()).toBeUndefined()
    session.open(broken)
    await session.goAway(ErrorCode.none, 'bye')
    expect(other.events).toEqual(['close gone-away'])
    expect(lines.map((line) => (line.err as Error).message)).toEqual([
      'accept failed',
      'close failed',
      'close failed',
    ])
  })
})

describe('acknowledgements', () => {
  it('go out at once to an SDK when there is nothing to say', async () => {
    const { peer } = await framedSession({ acknowledges: true })
    peer.data(1, 'type', SYN)
    await turns()
    expect(peer.frames).toEqual([{ type: 'windowIncrement', streamId: IDLE_STREAM_ID, bytes: 1 }])
    peer.windowIncrement(1, 10)
    await turns()
    expect(peer.frames).toHaveLength(2)
  })

  it('carry credit that is due', async () => {
    const { peer, accepted } = await framedSession({ acknowledges: true })
    peer.data(1, 'type', SYN)
    await turns()
    accepted[0]?.stream.release(4)
    peer.data(1, 'body')
    await turns()
    expect(peer.frames.slice(1)).toEqual([{ type: 'windowIncrement', streamId: 1, bytes: 4 }])
  })

  it('carry no credit for a peer that has ended', async () => {
    const { peer, accepted } = await framedSession({ acknowledges: true })
    peer.data(1, 'type', SYN)
    await turns()
    accepted[0]?.stream.release(4)
    peer.data(1, '', FIN)
    await turns()
    expect(peer.frames[1]).toEqual({ type: 'windowIncrement', streamId: IDLE_STREAM_ID, bytes: 1 })
  })

  it('ride on what is sent anyway', async () => {
    const { peer } = await framedSession({
      acknowledges: true,
      accept: (stream) => {
        stream.handler = new RecordingHandler()
        stream.write(Buffer.from('answer'))
      },
    })
    peer.data(1, 'type', SYN)
    await turns()
    expect(peer.frames).toEqual([{ type: 'data', streamId: 1, body: 'answer', flags: 0 }])
  })

  it('wait for the next frame while all streams rest', async () => {
    const { session, peer } = await framedSession({ acknowledges: true })
    const [first, second] = [session.open(DEAF), session.open(DEAF)]
    await turns()
    peer.frames.length = 0
    first.rest()
    first.rest()
    peer.data(2, 'part of an answer')
    await turns()
    expect(peer.only('windowIncrement')).toHaveLength(1)
    second.rest()
    peer.data(2, 'last answer')
    await turns()
    expect(peer.frames).toHaveLength(1)
    second.write(Buffer.from('ask'))
    await turns()
    peer.data(4, 'part of an answer')
    await turns()
    expect(peer.frames.slice(1)).toEqual([
      { type: 'data', streamId: 4, body: 'ask', flags: 0 },
      { type: 'windowIncrement', streamId: IDLE_STREAM_ID, bytes: 1 },
    ])
  })

  it('go out for a stream that the peer opens while all others rest', async () => {
    const { session, peer } = await framedSession({ acknowledges: true })
    session.open(DEAF).rest()
    await turns()
    peer.frames.length = 0
    peer.data(1, 'type', SYN)
    await turns()
    expect(peer.only('windowIncrement')).toHaveLength(1)
  })

  it('go out when the last stream ends: the peer may open another', async () => {
    const { session, peer } = await framedSession({ acknowledges: true })
    const stream = session.open(DEAF)
    stream.end()
    await turns()
    peer.frames.length = 0
    peer.data(stream.id, 'answer', FIN)
    await turns()
    expect(session.freeSlots).toBe(448)
    expect(peer.only('windowIncrement')).toMatchObject([{ streamId: IDLE_STREAM_ID }])
  })

  it('do not wait for streams that rested and are gone', async () => {
    const { session, peer } = await framedSession({ acknowledges: true })
    const [gone, open] = [session.open(DEAF), session.open(DEAF)]
    await turns()
    gone.rest()
    gone.reset(ErrorCode.none)
    await turns()
    peer.frames.length = 0
    peer.data(open.id, 'part of an answer')
    await turns()
    expect(peer.only('windowIncrement')).toHaveLength(1)
  })

  it('do not go out to whoever waits for none', async () => {
    const { peer } = await framedSession()
    peer.data(1, 'type', SYN)
    await turns()
    expect(peer.frames).toEqual([])
  })
})

describe('a peer that does not read', () => {
  it('loses the session when it keeps asking for answers', async () => {
    const { peer, transport, reason } = await framedSession({
      limits: { backlogBytes: 65_536, streams: 0 },
    })
    transport.pause()
    // Each is refused with an RST, and nobody reads those.
    for (let id = 1; id < 60_000 && reason() === undefined; id += 2) {
      peer.data(id, '', SYN)
      if (id % 501 === 0) await turns(1)
    }
    await turns()
    expect(reason()).toMatchObject({ reason: 'backlog-full', code: ErrorCode.enhanceYourCalm })
  })

  it('holds up all writers, and lets them go on in turn', async () => {
    const { session, peer, transport } = await framedSession()
    transport.pause()
    const handlers = [new RecordingHandler(), new RecordingHandler()]
    const streams = handlers.map((handler) => session.open(handler))
    // Three slabs; the fourth fills the transport.
    expect(streams[0]?.write(Buffer.alloc(190_000))).toBe(true)
    let roomLeft = true
    for (let chunk = 0; chunk < 20 && roomLeft; chunk++) {
      roomLeft = streams[1]?.write(Buffer.alloc(10_000)) ?? false
      await turns(2)
    }
    expect(roomLeft).toBe(false)
    expect(streams[0]?.write(Buffer.alloc(1))).toBe(false)
    expect(handlers.map((handler) => handler.events)).toEqual([[], []])
    transport.resume()
    await turns(60)
    expect(handlers.map((handler) => handler.events)).toEqual([['drain'], ['drain']])
    // The second stream began to wait first, so its rest came before the first one's byte.
    expect(peer.frames.at(-1)).toMatchObject({ streamId: 2, body: '\0' })
  })

  /** A session whose transport is full, with two streams behind the one that filled it. */
  async function crowded() {
    const framed = await framedSession()
    const { session, transport } = framed
    const handlers = [new RecordingHandler(), new RecordingHandler()] as const
    const streams = [session.open(handlers[0]), session.open(handlers[1])] as const
    const filler = session.open(new RecordingHandler())
    await turns()
    transport.pause()
    for (let hasRoom = true; hasRoom; ) {
      hasRoom = filler.write(Buffer.alloc(10_000))
      await turns(2)
    }
    const bodiesOf = (id: number) =>
      framed.peer.only('data').flatMap(({ streamId, body }) => (streamId === id ? [body] : []))
    return { ...framed, handlers, streams, bodiesOf }
  }

  it('gets the bytes of a stream in their order, whoever goes on first', async () => {
    const { transport, handlers, streams, bodiesOf } = await crowded()
    const [first, second] = streams
    handlers[0].onDrain = () => second.write(Buffer.from('after'))
    first.write(Buffer.from('x'))
    second.write(Buffer.from('before'))
    transport.resume()
    await turns(60)
    expect(bodiesOf(second.id).join(' ').trim()).toBe('before after')
  })

  it('gets nothing of a stream that it has reset meanwhile, no FIN either', async () => {
    const { peer, transport, streams, bodiesOf } = await crowded()
    const [first] = streams
    const before = bodiesOf(first.id)
    first.write(Buffer.from('x'))
    first.end()
    peer.reset(first.id, ErrorCode.streamCancelled)
    await turns()
    transport.resume()
    await turns(60)
    expect(bodiesOf(first.id)).toEqual(before)
  })

  it('gets the rest of a stream whose credit came when there was no room', async () => {
    const { session, peer, transport } = await framedSession()
    const stream = session.open(new RecordingHandler())
    stream.write(Buffer.alloc(900_000))
    await turns(60)
    transport.pause()
    peer.windowIncrement(stream.id, 800_000)
    await turns(60)
    transport.resume()
    await turns(200)
    expect(peer.only('data').reduce((sum, { body }) => sum + body.length, 0)).toBe(900_000)
  })
})
