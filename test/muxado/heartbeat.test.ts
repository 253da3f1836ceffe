import { describe, expect, it } from 'vitest'
import { ErrorCode } from '../../src/muxado/error-code.ts'
import { FIN, SYN } from '../../src/muxado/frame-codec.ts'
import { echoHeartbeat, HEARTBEAT_STREAM_TYPE, Heartbeat } from '../../src/muxado/heartbeat.ts'
import { acceptTyped, type SessionOptions } from '../../src/muxado/session.ts'
import { DEAF } from '../../src/muxado/stream.ts'
import { type FramePeer, turns } from '../helpers/frame-peer.ts'
import { framedSession } from '../helpers/framed-session.ts'
import { ManualClock } from '../helpers/manual-clock.ts'

describe('Heartbeat', () => {
  async function beating(heardAt?: (clock: ManualClock) => number) {
    const framed = await framedSession()
    const clock = new ManualClock()
    const latencies: number[] = []
    let missed = 0
    const heartbeat = new Heartbeat({
      session: framed.session,
      clock,
      intervalMs: 10_000,
      toleranceMs: 15_000,
      ...(heardAt && { heardAt: () => heardAt(clock) }),
      onLatency: (ms) => latencies.push(ms),
      onMissed: () => {
        missed += 1
      },
    })
    heartbeat.start()
    heartbeat.start()
    await turns()
    return { ...framed, clock, latencies, heartbeat, missed: () => missed }
  }
  /** The frames that open streams. */
  const beats = (peer: FramePeer) => peer.only('data').filter(({ flags }) => flags === SYN)
  /** Without the type of the stream. */
  const lastBeat = (peer: FramePeer) =>
    Buffer.from(beats(peer).at(-1)?.body ?? '', 'latin1').subarray(4)

  it('beats at once, on a stream of its own that ends after the echo', async () => {
    const { peer, clock, session } = await beating()
    expect(beats(peer)).toMatchObject([
      { streamId: 2, body: expect.stringMatching(/^\xff{4}[\s\S]{4}$/), flags: SYN },
    ])
    expect(peer.only('reset')).toEqual([])
    expect(session.freeSlots).toBe(448)
    peer.data(2, lastBeat(peer))
    await turns()
    // The FIN is first: the peer ignores it after an RST.
    expect(peer.frames.slice(1)).toMatchObject([
      { type: 'data', streamId: 2, body: '', flags: FIN },
      { type: 'reset', streamId: 2, code: ErrorCode.streamCancelled },
      { type: 'windowIncrement', streamId: 2 },
    ])
    expect(session.freeSlots).toBe(448)
    await clock.advance(10_000)
    await turns()
    expect(beats(peer).map(({ streamId }) => streamId)).toEqual([2, 4])
    peer.data(4, lastBeat(peer))
    await turns()
    expect(peer.only('reset').map(({ streamId }) => streamId)).toEqual([2, 4])
  })

  it('beats while all streams of the session are in use', async () => {
    const { peer, clock, session, missed, latencies } = await beating()
    peer.data(2, lastBeat(peer))
    await turns()
    while (session.freeSlots > 0) session.open(DEAF)
    await turns()
    await clock.advance(10_000)
    await turns()
    const { streamId = 0 } = beats(peer).at(-1) ?? {}
    expect(lastBeat(peer)).toHaveLength(4)
    peer.data(streamId, lastBeat(peer))
    await turns()
    expect(latencies).toHaveLength(2)
    expect([missed(), session.freeSlots]).toEqual([0, 0])
  })

  it('says how long an echo is owed, and sends one beat at a time when it is asked to', async () => {
    const { peer, clock, heartbeat } = await beating()
    await clock.advance(1_400)
    expect(heartbeat.owedMs).toBe(1_400)
    heartbeat.beat()
    await turns()
    expect(beats(peer)).toHaveLength(1)
    peer.data(2, lastBeat(peer))
    await turns()
    expect(heartbeat.owedMs).toBe(0)
    heartbeat.beat()
    await turns()
    expect(beats(peer)).toHaveLength(2)
  })

  it('reports the time to the echo, and beats again after the interval', async () => {
    const { peer, clock, latencies, missed } = await beating()
    const first = lastBeat(peer)
    await clock.advance(30)
    peer.data(2, first.subarray(0, 1))
    peer.data(2, first.subarray(1))
    await turns()
    expect(latencies).toEqual([30])
    peer.data(2, first)
    await turns()
    expect(latencies).toEqual([30])
    await clock.advance(9_999)
    expect(beats(peer)).toHaveLength(1)
    await clock.advance(1)
    await turns()
    expect(beats(peer)).toHaveLength(2)
    peer.data(4, lastBeat(peer))
    await turns()
    expect(latencies).toEqual([30, 0])
    expect(missed()).toBe(0)
  })

  it('says nothing while the peer is heard otherwise, and asks when that ends', async () => {
    let heardAt: number | undefined
    const { peer, clock, missed } = await beating((it) => {
      heardAt ??= it.monotonic()
      return heardAt
    })
    expect(beats(peer)).toEqual([])
    await clock.advance(9_999)
    heardAt = clock.monotonic()
    await clock.advance(9_999)
    expect(beats(peer)).toEqual([])
    await clock.advance(1)
    await turns()
    expect(beats(peer)).toHaveLength(1)
    await clock.advance(15_000)
    expect(missed()).toBe(1)
  })

  it.each([
    ['no echo', ''],
    ['a wrong echo', 'abcd'],
  ])('misses a beat with %s within the tolerance, once', async (_name, echo) => {
    const { peer, clock, latencies, missed } = await beating()
    peer.data(2, echo)
    await turns()
    await clock.advance(14_999)
    expect(missed()).toBe(0)
    await clock.advance(1)
    expect(missed()).toBe(1)
    peer.data(2, lastBeat(peer))
    await turns()
    await clock.advance(100_000)
    expect(missed()).toBe(1)
    expect(latencies).toEqual([])
  })

  it('rests after stop, and resets its stream, once', async () => {
    const { peer, clock, heartbeat, missed, session } = await beating()
    heartbeat.stop()
    heartbeat.stop()
    await clock.advance(100_000)
    expect([missed(), clock.sleeping, beats(peer).length]).toEqual([0, 0, 1])
    expect(peer.only('reset')).toMatchObject([{ streamId: 2, code: ErrorCode.streamCancelled }])
    expect(session.freeSlots).toBe(448)
  })

  it('rests when its session ends', async () => {
    const { session, clock, missed } = await beating()
    await session.goAway(ErrorCode.none, 'bye')
    await clock.advance(100_000)
    expect([missed(), clock.sleeping]).toEqual([0, 0])
  })

  it('rests when its session has ended between two heartbeats', async () => {
    const { peer, session, clock, heartbeat, missed } = await beating()
    peer.data(2, lastBeat(peer))
    await turns()
    await session.goAway(ErrorCode.none, 'bye')
    const answered = heartbeat.answers(60_000)
    expect(await answered).toBe(false)
    await clock.advance(100_000)
    expect([missed(), clock.sleeping]).toEqual([0, 0])
  })
})

describe('echoHeartbeat', () => {
  async function echoing(options: Partial<SessionOptions> = {}) {
    const types: number[] = []
    const framed = await framedSession({
      role: 'client',
      accept: acceptTyped((type, stream) => {
        types.push(type)
        echoHeartbeat(stream)
      }),
      ...options,
    })
    framed.peer.data(2, Buffer.from('ffffffff61626364', 'hex'), SYN)
    await turns()
    return { ...framed, types }
  }

  it('awaits nothing after an echo, so that other streams need no acknowledgement', async () => {
    const { peer, session } = await echoing({ acknowledges: true })
    const other = session.open(DEAF)
    other.rest()
    await turns()
    peer.frames.length = 0
    peer.data(other.id, 'last part')
    await turns()
    expect(peer.frames).toEqual([])
  })

  it('sends back what comes, and ends with the peer', async () => {
    const { peer, session, types } = await echoing()
    expect(types).toEqual([HEARTBEAT_STREAM_TYPE])
    peer.data(2, 'efgh', FIN)
    await turns()
    expect(peer.only('data').map(({ body }) => body)).toEqual(['abcd', 'efgh', ''])
    expect(session.freeSlots).toBe(448)
  })

  it('holds no more than two windows of a peer that does not read', async () => {
    const { peer, session } = await echoing()
    const sent = () => peer.only('data').reduce((sum, { body }) => sum + body.length, 0)
    for (let frame = 0; frame < 31; frame++) {
      peer.data(2, Buffer.alloc(16_000))
      await turns(2)
    }
    expect(sent()).toBe(262_144)
    const granted = () => peer.only('windowIncrement').reduce((sum, { bytes }) => sum + bytes, 0)
    expect(granted()).toBeLessThanOrEqual(262_144 + 16_000)
    peer.windowIncrement(2, 1_000_000)
    await turns()
    expect(sent()).toBe(31 * 16_000 + 4)
    expect(session.freeSlots).toBe(447)
  })
})
