import fc from 'fast-check'
import { describe, expect, it } from 'vitest'
import { ErrorCode } from '../../src/muxado/error-code.ts'
import { FIN, INITIAL_WINDOW_BYTES, MAX_UINT31, SYN } from '../../src/muxado/frame-codec.ts'
import { ReceiveWindow, SendWindow } from '../../src/muxado/session-stream.ts'
import { eventually } from '../helpers/eventually.ts'
import { type Frame, turns } from '../helpers/frame-peer.ts'
import { framedSession } from '../helpers/framed-session.ts'
import { RecordingHandler } from '../helpers/recording-handler.ts'

/** A client's session, which sends nothing on its own, with one stream (id 1) of its own. */
async function openStream(limits = {}) {
  const framed = await framedSession({ role: 'client', limits })
  const handler = new RecordingHandler()
  const stream = framed.session.open(handler)
  await turns()
  framed.peer.frames.length = 0
  return { ...framed, handler, stream }
}

const fin: Frame = { type: 'data', streamId: 1, body: '', flags: FIN }
const reset = (code: number): Frame[] => [
  { type: 'reset', streamId: 1, code },
  // The credit that wakes a peer which waits for its window.
  { type: 'windowIncrement', streamId: 1, bytes: 1 },
]

const bytesOf = (frames: { body: string }[]) =>
  frames.reduce((sum, { body }) => sum + body.length, 0)

describe('a stream that writes', () => {
  it('cuts a chunk into frames of 16,376 bytes', async () => {
    const { stream, peer } = await openStream()
    expect(stream.write(Buffer.alloc(40_000))).toBe(true)
    await turns()
    expect(peer.only('data').map((frame) => frame.body.length)).toEqual([16_376, 16_376, 7_248])
  })

  it('stops at the end of its window and goes on with the credit', async () => {
    const { stream, peer, handler } = await openStream()
    expect(stream.write(Buffer.alloc(INITIAL_WINDOW_BYTES + 100, 'a'))).toBe(false)
    expect(stream.write(Buffer.from('bc'))).toBe(false)
    await turns()
    expect(bytesOf(peer.only('data'))).toBe(INITIAL_WINDOW_BYTES)
    peer.windowIncrement(1, 101)
    await turns()
    expect(bytesOf(peer.only('data'))).toBe(INITIAL_WINDOW_BYTES + 101)
    expect(peer.only('data').at(-1)?.body).toBe('b')
    expect(handler.events).toEqual([])
    peer.windowIncrement(1, 1)
    await turns()
    expect(peer.only('data').at(-1)?.body).toBe('c')
    expect(handler.events).toEqual(['drain'])
  })

  it('sends its FIN behind what waits for credit', async () => {
    const { stream, peer, handler } = await openStream()
    stream.write(Buffer.alloc(INITIAL_WINDOW_BYTES + 1, 'a'))
    stream.end()
    stream.end()
    await turns()
    expect(peer.only('data').at(-1)?.flags).toBe(0)
    peer.windowIncrement(1, 10)
    await turns()
    expect(peer.only('data').slice(-2)).toMatchObject([{ body: 'a', flags: 0 }, fin])
    peer.windowIncrement(1, 10)
    await turns()
    expect(handler.events).toEqual([])
  })

  it('is cut off with send-queue-full when its owner never waits', async () => {
    const { stream, peer, handler } = await openStream({ sendQueueBytes: 1_000 })
    stream.write(Buffer.alloc(INITIAL_WINDOW_BYTES + 1_000))
    stream.write(Buffer.alloc(1))
    expect(handler.events).toEqual([])
    expect(stream.write(Buffer.alloc(1))).toBe(false)
    await turns()
    expect(handler.error).toMatchObject({ reason: 'send-queue-full', code: ErrorCode.internal })
    expect(peer.frames.slice(-2)).toEqual(reset(ErrorCode.internal))
  })

  it('is reset with write-after-end', async () => {
    const { stream, peer, handler } = await openStream()
    stream.end()
    expect(stream.write(Buffer.from('late'))).toBe(false)
    await turns()
    expect(handler.error?.reason).toBe('write-after-end')
    expect(peer.frames).toEqual([fin, ...reset(ErrorCode.internal)])
  })

  it('drops what is written once it is closed', async () => {
    const { stream, peer, handler } = await openStream()
    stream.reset(ErrorCode.streamCancelled)
    expect(stream.write(Buffer.from('late'))).toBe(false)
    stream.end()
    stream.release(5)
    stream.retire()
    stream.reset(ErrorCode.internal)
    await turns()
    expect(peer.frames).toEqual(reset(ErrorCode.streamCancelled))
    expect(handler.events).toEqual(['close stream-cancelled'])
  })

  it('is reset with the code that its owner gives', async () => {
    const { stream, peer, handler } = await openStream()
    stream.reset(ErrorCode.enhanceYourCalm)
    await turns()
    expect(peer.frames).toEqual(reset(ErrorCode.enhanceYourCalm))
    expect(handler.error).toMatchObject({ code: ErrorCode.enhanceYourCalm })
  })

  it('is reset when the peer grants more than 2^31 - 1', async () => {
    const { peer, handler, session } = await openStream()
    peer.windowIncrement(1, MAX_UINT31)
    await turns()
    expect(handler.error).toMatchObject({ reason: 'window-exceeded', code: ErrorCode.flowControl })
    expect(peer.frames).toEqual(reset(ErrorCode.flowControl))
    expect(session.freeSlots).toBe(448)
  })
})

describe('a stream that reads', () => {
  it('may hold one window of bytes, and is reset with flow control for one more', async () => {
    const { peer, handler, session } = await openStream()
    for (let frame = 0; frame < 16; frame++) peer.data(1, Buffer.alloc(16_384))
    await turns()
    expect(handler.isClosed).toBe(false)
    peer.data(1, 'x')
    await turns()
    expect(handler.error).toMatchObject({ reason: 'window-exceeded', code: ErrorCode.flowControl })
    expect(peer.frames).toEqual(reset(ErrorCode.flowControl))
    expect(session.freeSlots).toBe(448)
  })

  it('gives credit back in steps of 32 KiB', async () => {
    const { stream, peer } = await openStream()
    peer.data(1, Buffer.alloc(70_000))
    await turns()
    for (const bytes of [20_000, 12_767, 1, 30_000, 7_232]) stream.release(bytes)
    await turns()
    expect(peer.only('windowIncrement').map((frame) => frame.bytes)).toEqual([32_768, 37_232])
  })

  it('takes a window again for what was given back', async () => {
    const { stream, peer, handler } = await openStream()
    peer.data(1, Buffer.alloc(INITIAL_WINDOW_BYTES))
    await turns(60)
    stream.release(INITIAL_WINDOW_BYTES)
    peer.data(1, Buffer.alloc(INITIAL_WINDOW_BYTES))
    await turns(60)
    expect(handler.isClosed).toBe(false)
  })

  it('owes no credit to a peer that has ended', async () => {
    const { stream, peer } = await openStream()
    peer.data(1, Buffer.alloc(70_000), FIN)
    await turns()
    stream.release(70_000)
    await turns()
    expect(peer.frames).toEqual([])
  })

  it('is closed once both sides have sent FIN', async () => {
    const { stream, peer, handler, session } = await openStream()
    peer.data(1, 'x', FIN)
    await turns()
    expect(handler.events).toEqual(['data x', 'end'])
    expect(session.freeSlots).toBe(447)
    stream.end()
    expect(handler.events).toEqual(['data x', 'end', 'close'])
    expect(session.freeSlots).toBe(448)
  })

  it('overlooks a second FIN but not DATA behind the first', async () => {
    const { peer, handler } = await openStream()
    peer.data(1, '', FIN)
    peer.data(1, '', FIN)
    await turns()
    expect(handler.events).toEqual(['end'])
    peer.data(1, 'x')
    await turns()
    expect(handler.events).toEqual(['end', 'close protocol-violation'])
  })

  it('hears of a reset by the peer with its code', async () => {
    const { peer, handler, session } = await openStream()
    peer.reset(1, 4_711)
    await turns()
    expect(handler.error).toMatchObject({ reason: 'stream-reset', code: 4_711 })
    expect(peer.frames).toEqual([])
    expect(session.freeSlots).toBe(448)
  })

  it('hears nothing more of a frame in which it was reset', async () => {
    const { stream, peer, handler, reason } = await openStream()
    handler.onData = (chunk) => {
      handler.events.push(`data ${chunk.toString()}`)
      stream.reset(ErrorCode.streamCancelled)
    }
    peer.raw('000004 11 00000001 6162')
    await turns()
    peer.raw('6364')
    await turns()
    expect(handler.events).toEqual(['data ab', 'close stream-cancelled'])
    expect(reason()).toBeUndefined()
  })

  it('hands the rest to a handler that took over', async () => {
    const { stream, peer, handler } = await openStream()
    const next = new RecordingHandler()
    peer.data(1, 'one')
    await turns()
    stream.handler = next
    peer.data(1, 'two', FIN)
    await turns()
    expect([handler.events, next.events]).toEqual([['data one'], ['data two', 'end']])
  })
})

describe('a retired stream', () => {
  it('keeps its slot until the peer’s FIN', async () => {
    const { stream, peer, handler, session } = await openStream()
    stream.retire()
    stream.retire()
    await turns()
    expect(peer.frames).toEqual([fin])
    expect(session.freeSlots).toBe(447)
    peer.data(1, '', FIN)
    await turns()
    expect(handler.events).toEqual(['close'])
    expect(session.freeSlots).toBe(448)
  })

  it('is closed at once when the peer has ended before', async () => {
    const { stream, peer, handler } = await openStream()
    peer.data(1, '', FIN)
    await turns()
    stream.retire()
    expect(handler.events).toEqual(['end', 'close'])
  })

  it.each<[string, readonly ('end' | 'retire')[]]>([
    ['after end()', ['end', 'retire']],
    ['before end()', ['retire', 'end']],
  ])('sends no second FIN: %s', async (_when, calls) => {
    const { stream, peer } = await openStream()
    for (const call of calls) stream[call]()
    await turns()
    expect(peer.frames).toEqual([fin])
  })

  it('drops what still waits for credit, end() or not', async () => {
    const { stream, peer } = await openStream()
    stream.write(Buffer.alloc(INITIAL_WINDOW_BYTES + 5))
    stream.end()
    await turns()
    peer.frames.length = 0
    stream.retire()
    expect(stream.write(Buffer.from('more'))).toBe(false)
    peer.windowIncrement(1, 100)
    await turns()
    expect(peer.frames).toEqual([fin])
  })

  it('resets a peer that sends on, and frees the slot', async () => {
    const { stream, peer, handler, session } = await openStream()
    stream.retire()
    peer.data(1, 'still')
    peer.data(1, 'sending')
    await turns()
    expect(peer.frames).toEqual([fin, ...reset(ErrorCode.streamCancelled)])
    expect(handler.events).toEqual(['close stream-cancelled'])
    expect(session.freeSlots).toBe(448)
  })

  it('gives a peer that waits for credit its window back, so that it wakes', async () => {
    const { stream, peer } = await openStream()
    peer.data(1, Buffer.alloc(1_000))
    await turns()
    stream.release(300)
    stream.retire()
    stream.release(700)
    await turns()
    expect(peer.frames).toEqual([{ type: 'windowIncrement', streamId: 1, bytes: 1_000 }, fin])
  })

  it('swallows the rest of a frame with FIN', async () => {
    const { stream, peer, handler } = await openStream()
    handler.onData = () => stream.retire()
    peer.data(1, 'x', FIN)
    await turns()
    expect(peer.frames).toEqual([{ type: 'windowIncrement', streamId: 1, bytes: 1 }, fin])
    expect(handler.events).toEqual(['close'])
  })

  describe('whose peer sends now and then', () => {
    async function lingering(lingerMs: number) {
      const opened = await openStream({ lingerMs, busyMs: 0 })
      opened.stream.retire()
      opened.peer.data(1, 'tick')
      await turns()
      return opened
    }

    it('keeps its slot for a while after the RST', async () => {
      const { peer, handler, session } = await lingering(50)
      expect(peer.frames).toEqual([fin, ...reset(ErrorCode.streamCancelled)])
      expect(handler.events).toEqual([])
      expect(session.freeSlots).toBe(447)
      await eventually(() => expect(handler.events).toEqual(['close']))
      expect(session.freeSlots).toBe(448)
    })

    it('sends one RST, whatever else comes', async () => {
      const { peer } = await lingering(60_000)
      peer.data(1, 'tock')
      await turns()
      expect(peer.only('reset')).toHaveLength(1)
    })

    it.each([
      ['FIN', 'close', (peer) => peer.data(1, '', FIN)],
      ['RST', 'close stream-reset', (peer) => peer.reset(1, 4)],
    ] as [string, string, (peer: Awaited<ReturnType<typeof lingering>>['peer']) => void][])(
      'is free at its %s',
      async (_name, event, say) => {
        const { peer, handler, session } = await lingering(60_000)
        say(peer)
        await turns()
        expect(handler.events).toEqual([event])
        expect(session.freeSlots).toBe(448)
      },
    )
  })
})

describe('a stream of the peer', () => {
  it('is closed like one of ours', async () => {
    const { session, peer, accepted } = await framedSession()
    peer.data(1, 'ask', SYN | FIN)
    await turns()
    accepted[0]?.stream.write(Buffer.from('answer'))
    accepted[0]?.stream.end()
    await turns()
    expect(accepted[0]?.handler.events).toEqual(['data ask', 'end', 'close'])
    expect(peer.only('data').map(({ body, flags }) => [body, flags])).toEqual([
      ['answer', 0],
      ['', FIN],
    ])
    expect(session.freeSlots).toBe(448)
  })
})

describe('SendWindow', () => {
  it('counts what may still be sent', () => {
    const window = new SendWindow()
    window.take(INITIAL_WINDOW_BYTES)
    expect(window.available).toBe(0)
    expect(window.grow(10)).toBe(true)
    expect(window.available).toBe(10)
  })

  it('grows up to 2^31 - 1 and no further', () => {
    expect(new SendWindow().grow(MAX_UINT31 - INITIAL_WINDOW_BYTES)).toBe(true)
    expect(new SendWindow().grow(MAX_UINT31 - INITIAL_WINDOW_BYTES + 1)).toBe(false)
  })
})

describe('ReceiveWindow', () => {
  it('takes one window of bytes and not one more', () => {
    const window = new ReceiveWindow()
    expect(window.receive(INITIAL_WINDOW_BYTES)).toBe(true)
    expect(window.unreleased).toBe(INITIAL_WINDOW_BYTES)
    expect(window.receive(1)).toBe(false)
  })

  it('asks for a grant once 32 KiB are owed', () => {
    const window = new ReceiveWindow()
    window.receive(40_000)
    expect(window.release(32_767)).toBe(false)
    expect(window.release(1)).toBe(true)
    expect(window.grant()).toBe(32_768)
    expect(window.grant()).toBe(0)
  })

  it('does not grant more than was received, whatever its owner releases', () => {
    const window = new ReceiveWindow()
    window.receive(100)
    window.release(1_000_000)
    expect(window.grant()).toBe(100)
  })

  it('never lets the owner hold more than the window', () => {
    const step = fc.record({
      receive: fc.integer({ min: 0, max: 100_000 }),
      release: fc.integer({ min: 0, max: 100_000 }),
      grants: fc.boolean(),
    })
    fc.assert(
      fc.property(fc.array(step, { maxLength: 50 }), (steps) => {
        const window = new ReceiveWindow()
        let granted = INITIAL_WINDOW_BYTES
        for (const { receive, release, grants } of steps) {
          const bytes = Math.min(receive, granted)
          expect(window.receive(bytes)).toBe(true)
          granted -= bytes
          window.release(release)
          if (grants) granted += window.grant()
          expect(window.unreleased).toBeGreaterThanOrEqual(0)
          expect(window.unreleased + granted).toBeLessThanOrEqual(INITIAL_WINDOW_BYTES)
        }
      }),
    )
  })
})
