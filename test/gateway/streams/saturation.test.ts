import { describe, expect, it, vi } from 'vitest'
import { DEAF } from '../../../src/muxado/stream.ts'
import { turns } from '../../helpers/frame-peer.ts'
import { Asker, leaveIdle, SLOW, startSlots, takeAll } from '../../helpers/slots-rig.ts'

const NEVER = Number.POSITIVE_INFINITY
const X = '198.51.100.1'
const Y = '198.51.100.2'
const V = '203.0.113.1'

const evicted = (askers: Asker[]) => askers.filter(({ isEvicted }) => isEvicted).length

describe('who waits for a stream', () => {
  it('has one that others do not take in time, 2 s after it came', async () => {
    const { createPool, clock } = await startSlots({ session: { openStreams: 40 } })
    const pool = createPool('ep_a')
    new Asker(pool, X).ask().stream?.retire()
    await turns()
    const slow = takeAll(pool, [X, Y], SLOW)
    slow[0]?.stream?.retire()
    await turns()
    slow.push(new Asker(pool, X, SLOW).ask())
    const waiting = new Asker(pool, V).ask()
    await clock.advance(1_500)
    expect([evicted(slow), waiting.stream]).toEqual([0, undefined])
    await clock.advance(500)
    expect(evicted(slow)).toBe(1)
    await turns()
    expect(waiting.stream).toBeDefined()
    await clock.advance(5_000)
    expect(evicted(slow)).toBe(1)
  })

  it('has an exchange ended for each that is due, and for none that has just come', async () => {
    const { createPool, clock } = await startSlots({ session: { openStreams: 40 } })
    const pool = createPool('ep_a')
    const slow = takeAll(pool, [X, Y], SLOW)
    for (let at = 0; at < 3; at += 1) new Asker(pool, `203.0.113.${at}`).ask()
    await clock.advance(500)
    for (let at = 0; at < 9; at += 1) new Asker(pool, `203.0.113.1${at}`).ask()
    await clock.advance(1_500)
    expect(evicted(slow)).toBe(3)
  })

  it('has eight ended at a time, and not all at once', async () => {
    const { createPool, clock } = await startSlots({ session: { openStreams: 40 } })
    const pool = createPool('ep_a')
    const slow = takeAll(pool, [X, Y], SLOW)
    for (let at = 0; at < 20; at += 1) new Asker(pool, `203.0.113.${at}`).ask()
    await clock.advance(2_000)
    expect(evicted(slow)).toBe(8)
  })

  it('hears that the device is silent, asks for that, and has nobody ended then', async () => {
    const link = {
      asked: 0,
      isSilent: false,
      ask() {
        link.asked += 1
      },
    }
    const { createPool, clock } = await startSlots({ session: { openStreams: 40 }, link })
    const pool = createPool('ep_a')
    const slow = takeAll(pool, [X, Y], SLOW)
    expect(link.asked).toBe(0)
    const waiting = new Asker(pool, V).ask()
    await clock.advance(500)
    expect(link.asked).toBe(1)
    link.isSilent = true
    await clock.advance(6_500)
    expect([waiting.refused, evicted(slow)]).toEqual(['silent', 0])
    link.isSilent = false
    const next = new Asker(pool, V).ask()
    await clock.advance(2_000)
    expect([next.refused, evicted(slow)]).toEqual([undefined, 1])
  })

  it('has nobody ended while it waits for a slot that comes free without that', async () => {
    const { createPool, clock, device, session } = await startSlots({
      session: { openStreams: 16 },
    })
    leaveIdle(createPool('ep_b'), 10)
    const pool = createPool('ep_a')
    const slow = Array.from({ length: 6 }, () => new Asker(pool, X, SLOW).ask())
    expect(session.freeSlots).toBe(0)
    device.isDeaf = true
    const waiting = new Asker(createPool('ep_c'), V).ask()
    await clock.advance(2_000)
    expect([evicted(slow), waiting.refused]).toEqual([0, undefined])
  })

  it('has streams of a closed endpoint, which looks after its last no more', async () => {
    const { createPool, clock } = await startSlots({ session: { openStreams: 40 } })
    const [pool, empty, other] = [createPool('ep_a'), createPool('ep_b'), createPool('ep_c')]
    const slow = takeAll(pool, [X, Y], SLOW)
    const rest = takeAll(other, [X, Y, '198.51.100.3'])
    takeAll(createPool('ep_d'), [X, Y, '198.51.100.4'])
    pool.close()
    empty.close()
    slow.shift()?.stream?.retire()
    await turns()
    takeAll(createPool('ep_f'), ['198.51.100.6'])
    const looks = [pool, empty].map((closed) => vi.spyOn(closed, 'busy', 'get'))
    new Asker(other, V).ask()
    await clock.advance(2_000)
    expect([evicted(slow), evicted(rest)]).toEqual([1, 0])
    expect(looks.map(({ mock }) => mock.calls.length)).toEqual([1, 0])
    for (const asker of slow) asker.stream?.retire()
    await turns()
    for (const look of looks) look.mockClear()
    takeAll(other, [X, Y, '198.51.100.3', V])
    takeAll(createPool('ep_e'), [X, Y, '198.51.100.5'])
    new Asker(other, '203.0.113.2').ask()
    await clock.advance(2_000)
    expect(looks.map(({ mock }) => mock.calls.length)).toEqual([0, 0])
  })

  it('is told after 7 s that there is none', async () => {
    const { createPool, clock } = await startSlots({ session: { openStreams: 1 } })
    const pool = createPool('ep_a')
    new Asker(pool, X).ask()
    const waiting = new Asker(pool, V).ask()
    await clock.advance(6_500)
    expect(waiting.refused).toBeUndefined()
    await clock.advance(500)
    expect(waiting.refused).toBe('saturated')
  })

  it('keeps its share of the line, however long it holds nothing', async () => {
    const { createPool, clock, slots } = await startSlots({
      session: { openStreams: 1 },
      limits: { queueLength: 3 },
    })
    const pool = createPool('ep_a')
    new Asker(pool, X).ask()
    const waiting = [new Asker(pool, V).ask(), new Asker(pool, V).ask()]
    await clock.advance(500)
    expect(new Asker(createPool('ep_b'), V).ask().refused).toBe('saturated')
    for (const asker of waiting) pool.cancel(asker)
    expect(slots.clients).toBe(1)
  })

  it('hears when its own endpoint closes, unless somebody has withdrawn it', async () => {
    const { createPool, slots } = await startSlots({ session: { openStreams: 1 } })
    const [pool, other] = [createPool('ep_a'), createPool('ep_b')]
    new Asker(pool, X).ask()
    const first = new Asker(pool, V).ask()
    const second = new Asker(pool, V).ask()
    const foreign = new Asker(other, V).ask()
    first.onNoStream = (reason) => {
      first.refused = reason
      pool.cancel(second)
    }
    pool.close()
    expect([first, second, foreign].map(({ refused }) => refused)).toEqual([
      'session-over',
      undefined,
      undefined,
    ])
    expect(slots.waiting).toBe(1)
  })

  it('hears when the session is over, and nothing ticks any more', async () => {
    const { createPool, slots, clock, session } = await startSlots({ session: { openStreams: 3 } })
    const pool = createPool('ep_a')
    leaveIdle(pool, 2)
    new Asker(createPool('ep_b'), X).ask()
    const waiting = new Asker(pool, V).askFresh()
    expect(waiting.stream).toBeUndefined()
    slots.close()
    expect(waiting.refused).toBe('session-over')
    expect(new Asker(pool, V).ask().refused).toBe('session-over')
    await turns()
    expect([slots.waiting, clock.sleeping, session.freeSlots]).toEqual([0, 0, 2])
  })
})

describe('a client that is alone', () => {
  const OPEN = 64
  const RESERVED = 8
  const start = () =>
    startSlots({ session: { openStreams: OPEN }, limits: { reserved: RESERVED, leastRate: 1 } })

  it('has all streams but those that are kept for others', async () => {
    const { createPool } = await start()
    expect(takeAll(createPool('ep_a'), [X])).toHaveLength(OPEN - RESERVED)
  })

  it('has hundreds in the line, and a second one is served at once, then as often as it', async () => {
    const { createPool, slots } = await start()
    const pool = createPool('ep_a')
    const held = takeAll(pool, [X])
    const first = Array.from({ length: 300 }, () => new Asker(pool, X).ask())
    expect(slots.waiting).toBe(300)
    const second = Array.from({ length: 100 }, () => new Asker(pool, V).ask())
    expect(second.filter(({ stream }) => stream)).toHaveLength(2)
    // What the first gives back goes to the second, up to its share.
    const count = (askers: Asker[]) => askers.filter(({ stream }) => stream).length
    for (const asker of held.slice(0, 20)) asker.stream?.release()
    await turns()
    expect(count(second)).toBeGreaterThanOrEqual(8)
    expect(count(first)).toBe(0)
    for (const asker of held.slice(20)) asker.stream?.release()
    await turns()
    expect(count(first)).toBeGreaterThanOrEqual(16)
    expect(Math.abs(count(second) - count(first))).toBeLessThanOrEqual(1)
  })

  it('does not lock others out by streams that never end', async () => {
    const { createPool, clock } = await start()
    const pool = createPool('ep_a')
    const held = takeAll(pool, [X], { rate: 0, isHeldUp: false })
    const second = Array.from({ length: 6 }, () => new Asker(pool, V).ask())
    expect(second.filter(({ stream }) => stream)).toHaveLength(2)
    for (let tick = 0; tick < 6; tick += 1) {
      await clock.advance(500)
      await turns()
    }
    expect(second.filter(({ stream }) => stream)).toHaveLength(6)
    expect(evicted(held)).toBeLessThan(12)
  })

  it('has its share as soon as another waits, and all again when nobody does', async () => {
    const { createPool } = await start()
    const pool = createPool('ep_a')
    const held = takeAll(pool, [X])
    const others = Array.from({ length: 30 }, () => new Asker(pool, V).ask())
    const more = new Asker(pool, X).ask()
    for (const asker of held.slice(0, 10)) asker.stream?.release()
    await turns()
    expect(others.filter(({ stream }) => stream).length).toBeGreaterThan(2)
    expect(more.stream).toBeUndefined()
    for (const other of others) if (!other.stream) pool.cancel(other)
    await turns()
    expect(more.stream).toBeDefined()
  })
})

describe('a slot for who waits', () => {
  it('is that of the stream that is unused for longest, of whatever endpoint', async () => {
    const { createPool, clock } = await startSlots({ session: { openStreams: 3 } })
    const pools = ['ep_a', 'ep_b', 'ep_c'].map((id) => createPool(id))
    for (const pool of pools) {
      leaveIdle(pool, 1)
      await clock.advance(500)
    }
    // The first is used again.
    if (pools[0]) new Asker(pools[0], X).ask().stream?.release()
    const waiting = new Asker(createPool('ep_d'), V).ask()
    expect(pools.map(({ oldestIdle }) => oldestIdle)).toEqual([3, NEVER, 2])
    await turns()
    expect(waiting.stream).toBeDefined()
  })

  it('is given up for nobody who has its share', async () => {
    const { createPool, session } = await startSlots({
      session: { openStreams: 40 },
      limits: { reserved: 8 },
    })
    leaveIdle(createPool('ep_b'), 5)
    const pool = createPool('ep_a')
    takeAll(pool, [X])
    for (const isServed of [true, true, false]) {
      const asker = new Asker(pool, Y).ask()
      await turns()
      expect(asker.stream !== undefined).toBe(isServed)
    }
    const { freeSlots } = session
    expect(new Asker(pool, X).ask().stream).toBeUndefined()
    await turns()
    expect(session.freeSlots).toBe(freeSlots)
  })

  it('costs one unused stream at a time, and what else gets idle goes to who takes it', async () => {
    const { createPool, device } = await startSlots({ session: { openStreams: 2 } })
    const pool = createPool('ep_a')
    const [first, second] = [new Asker(pool, X).ask(), new Asker(pool, Y).ask()]
    const foreign = new Asker(createPool('ep_b'), V).ask()
    const own = new Asker(pool, Y).ask()
    device.isDeaf = true
    first.stream?.release()
    second.stream?.release()
    expect([foreign.stream, own.stream]).toEqual([undefined, second.stream])
    expect(own.stream).toBeDefined()
    await turns()
    for (const stream of device.deaf) stream.end()
    await turns()
    expect(foreign.stream).toBeDefined()
  })

  it('may be one of a stream that is no endpoint’s, each time one comes free', async () => {
    const { createPool, device, session } = await startSlots({ session: { openStreams: 8 } })
    const whenFree = vi.spyOn(session, 'whenFree')
    const foreign = [session.open(DEAF), session.open(DEAF)]
    leaveIdle(createPool('ep_b'), 6)
    const pool = createPool('ep_a')
    await turns()
    device.isDeaf = true
    for (const [round, { id }] of foreign.entries()) {
      const waiting = [new Asker(pool, V).ask(), new Asker(pool, V).ask()]
      expect(whenFree).toHaveBeenCalledTimes(round + 1)
      device.streams.find((stream) => stream.id === id)?.end()
      foreign[round]?.end()
      await turns()
      expect(waiting.filter(({ stream }) => stream)).toHaveLength(1)
      for (const asker of waiting) if (!asker.stream) pool.cancel(asker)
    }
  })

  it('goes from hand to hand without one call inside the other, however long the line is', async () => {
    const { createPool } = await startSlots({ session: { openStreams: 1 } })
    const pool = createPool('ep_a')
    const holder = new Asker(pool, X).ask()
    let [depth, deepest, served] = [0, 0, 0]
    for (let at = 0; at < 50; at += 1) {
      const brief = new Asker(pool, `203.0.113.${at}`)
      brief.onStream = (stream) => {
        depth += 1
        deepest = Math.max(deepest, depth)
        served += 1
        stream.release()
        depth -= 1
      }
      brief.ask()
    }
    holder.stream?.release()
    expect([served, deepest]).toEqual([50, 1])
  })
})

it.each([
  [448, 16],
  [40, 5],
  [7, 0],
])('of %i streams, %i are kept for endpoints that hold few', async (openStreams, reserved) => {
  const { slots } = await startSlots({ session: { openStreams }, limits: { reserved: 16 } })
  expect(slots.reserved).toBe(reserved)
})
