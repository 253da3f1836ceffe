import type { Duplex } from 'node:stream'
import { describe, expect, it } from 'vitest'
import { createDeferred } from '../../../src/base/deferred.ts'
import { encodeProxyHeader } from '../../../src/gateway/agents/control-message.ts'
import type { NoStreamReason, ProxyStream } from '../../../src/gateway/streams/proxy-stream.ts'
import { StreamPool } from '../../../src/gateway/streams/stream-pool.ts'
import { StreamSlots } from '../../../src/gateway/streams/stream-slots.ts'
import { ErrorCode } from '../../../src/muxado/error-code.ts'
import { acceptTyped, Session } from '../../../src/muxado/session.ts'
import { tcpPair } from '../../helpers/connected-pair.ts'
import { eventually } from '../../helpers/eventually.ts'
import { ManualClock } from '../../helpers/manual-clock.ts'
import { clientFrom } from '../../helpers/slots-rig.ts'
import { asDuplex } from '../../helpers/stream-duplex.ts'

class Asker {
  stream: ProxyStream | undefined
  refused: NoStreamReason | undefined

  onStream(stream: ProxyStream): void {
    this.stream = stream
  }

  onNoStream(reason: NoStreamReason): void {
    this.refused = reason
  }

  readonly pace = { rate: undefined, isHeldUp: false }

  evict(): void {}
}

const CLIENT = { ...clientFrom('1.2.3.4'), address: '1.2.3.4:5' }

interface RigOptions {
  readonly openStreams?: number
  readonly queueLength?: number
}

async function startRig({ openStreams = 448, queueLength = 10 }: RigOptions = {}) {
  const pair = await tcpPair()
  const accepted: Duplex[] = []
  const agent = new Session(pair.client, {
    role: 'client',
    accept: acceptTyped((_type, stream) => {
      const duplex = asDuplex(stream)
      duplex.on('error', () => {})
      duplex.on('end', () => duplex.end())
      duplex.resume()
      accepted.push(duplex)
    }),
  })
  const session = new Session(pair.server, {
    role: 'server',
    accept: (stream) => stream.retire(),
    limits: { openStreams },
  })
  const clock = new ManualClock()
  const slots = new StreamSlots({ session, clock, limits: { queueLength } })
  const createPool = (id: string, ready?: Promise<void>) =>
    new StreamPool({
      slots,
      proxyHeader: (clientAddr) => encodeProxyHeader({ id, protocol: 'https' }, clientAddr),
      ...(ready ? { ready } : {}),
    })
  const ask = (pool: StreamPool) => {
    const asker = new Asker()
    pool.acquire(CLIENT, asker)
    return asker
  }
  return { session, agent, clock, slots, accepted, createPool, ask, pool: createPool('ep_a') }
}

describe('StreamPool', () => {
  it('hands the stream that was used last to the next asker', async () => {
    const { pool, ask } = await startRig()
    const [first, second] = [ask(pool), ask(pool)]
    expect(first.stream?.isReused).toBe(false)
    first.stream?.release()
    second.stream?.release()
    expect(ask(pool).stream).toBe(second.stream)
    expect(ask(pool).stream).toBe(first.stream)
    expect(first.stream?.isReused).toBe(true)
  })

  it('gives an unused stream up before the service does', async () => {
    const { pool, ask, clock, session } = await startRig()
    const free = pool.freeSlots
    ask(pool).stream?.release()
    await clock.advance(3_500)
    expect(pool.freeSlots).toBe(free - 1)
    await clock.advance(1_000)
    await eventually(() => expect(session.freeSlots).toBe(free))
    expect(ask(pool).stream?.isReused).toBe(false)
  })

  it('gives up after 4 s what is unused since then, and nothing younger', async () => {
    const { pool, ask, clock } = await startRig()
    const [older, younger] = [ask(pool).stream, ask(pool).stream]
    older?.release()
    await clock.advance(500)
    younger?.release()
    expect(clock.sleeping).toBe(1)
    await clock.advance(3_000)
    expect(pool.oldestIdle).toBe(older?.idleSince)
    await clock.advance(500)
    expect(pool.oldestIdle).toBe(younger?.idleSince)
    await clock.advance(500)
    expect(pool.oldestIdle).toBe(Number.POSITIVE_INFINITY)
  })

  it.each([
    ['is closed', (duplex: Duplex | undefined) => duplex?.end()],
    ['talks unasked', (duplex: Duplex | undefined) => duplex?.write('HTTP/1.1 408 \r\n\r\n')],
  ])('drops an unused stream whose service %s', async (_how, act) => {
    const { pool, ask, accepted, session } = await startRig()
    const free = session.freeSlots
    ask(pool).stream?.release()
    await eventually(() => expect(accepted).toHaveLength(1))
    act(accepted[0])
    await eventually(() => expect(session.freeSlots).toBe(free))
    expect(ask(pool).stream?.isReused).toBe(false)
  })

  it('lets askers wait in line for a stream that comes back', async () => {
    const { pool, ask, slots } = await startRig({ openStreams: 1 })
    const [first, second, third] = [ask(pool), ask(pool), ask(pool)]
    expect(slots.waiting).toBe(2)
    first.stream?.release()
    expect(second.stream).toBe(first.stream)
    expect(third.stream).toBeUndefined()
    second.stream?.release()
    expect(third.stream).toBe(first.stream)
  })

  it('frees a slot for an asker of another endpoint who was first in line', async () => {
    const { pool, ask, createPool } = await startRig({ openStreams: 1 })
    const other = createPool('ep_b')
    const holder = ask(pool)
    const foreign = ask(other)
    const next = ask(pool)
    holder.stream?.release()
    await eventually(() => expect(foreign.stream).toBeDefined())
    expect(next.stream).toBeUndefined()
    foreign.stream?.retire()
    await eventually(() => expect(next.stream).toBeDefined())
  })

  it('gives up an unused stream of another endpoint when no slot is left', async () => {
    const { pool, ask, createPool } = await startRig({ openStreams: 1 })
    ask(pool).stream?.release()
    const foreign = ask(createPool('ep_b'))
    expect(foreign.stream).toBeUndefined()
    await eventually(() => expect(foreign.stream).toBeDefined())
  })

  it('refuses an asker before a probe gives up, and at once when the line is full', async () => {
    const { pool, ask, clock } = await startRig({ openStreams: 1, queueLength: 1 })
    ask(pool)
    const waiting = ask(pool)
    expect(ask(pool).refused).toBe('saturated')
    await clock.advance(6_500)
    expect(waiting.refused).toBeUndefined()
    await clock.advance(1_500)
    expect(waiting.refused).toBe('saturated')
  })

  it('closed, refuses who asks and who waits, and lets exchanges go on', async () => {
    const { pool, ask, session, createPool, slots } = await startRig({ openStreams: 2 })
    const free = session.freeSlots
    const busy = ask(pool)
    ask(createPool('ep_b'))
    const waiting = ask(pool)
    pool.close()
    expect(waiting.refused).toBe('session-over')
    expect(ask(pool).refused).toBe('session-over')
    expect(slots.waiting).toBe(0)
    busy.stream?.release()
    await eventually(() => expect(session.freeSlots).toBe(free - 1))
  })

  it('cut off, takes streams away from exchanges too, and from them alone', async () => {
    const { pool, ask, session, createPool } = await startRig()
    const free = session.freeSlots
    const closed: (string | undefined)[] = []
    const hold = (stream: ProxyStream | undefined, name: string) => {
      if (!stream) throw new Error('no stream')
      stream.stream.handler = {
        onData() {},
        onEnd() {},
        onDrain() {},
        onClose: (error) => closed.push(`${name}: ${error?.reason}`),
      }
      return stream
    }
    const [first, again, foreign] = [ask(pool), ask(pool), ask(createPool('ep_b'))]
    again.stream?.release()
    hold(first.stream, 'first')
    hold(ask(pool).stream, 'again')
    hold(foreign.stream, 'foreign')
    ask(pool).stream?.retire()
    pool.cut()
    expect(closed).toEqual(['first: stream-cancelled', 'again: stream-cancelled'])
    expect(ask(pool).refused).toBe('session-over')
    await eventually(() => expect(session.freeSlots).toBe(free - 1))
    pool.cut()
    expect(closed).toHaveLength(2)
  })

  it('lets who comes before the agent is ready wait in turn, and nobody else', async () => {
    const { ask, createPool, pool, session, accepted } = await startRig({ openStreams: 2 })
    const ready = createDeferred()
    const young = createPool('ep_b', ready.promise)
    const [first, second] = [ask(young), ask(young)]
    const foreign = ask(pool)
    expect(foreign.stream).toBeDefined()
    await eventually(() => expect(accepted).toHaveLength(1))
    expect(first.stream).toBeUndefined()
    ready.resolve()
    await ready.promise
    expect(first.stream).toBeDefined()
    expect(second.stream).toBeUndefined()
    foreign.stream?.retire()
    await eventually(() => expect(second.stream).toBeDefined())
    first.stream?.release()
    expect(ask(young).stream).toBe(first.stream)
    await eventually(() => expect(session.freeSlots).toBe(0))
  })

  // What rejects here is nobody's to catch, and would end the process.
  it.each(['resolves', 'rejects'] as const)(
    'serves who waits when one of them fails and the readiness %s',
    async (how) => {
      const { ask, createPool } = await startRig()
      const ready = createDeferred()
      const pool = createPool('ep_b', ready.promise)
      const broken = new Asker()
      broken.onStream = () => {
        throw new Error('a mistake of its exchange')
      }
      pool.acquire(CLIENT, broken)
      const patient = ask(pool)
      if (how === 'resolves') ready.resolve()
      else ready.reject(new Error('the answer was not heard'))
      await eventually(() => expect(patient.stream).toBeDefined())
      expect(ask(pool).stream).toBeDefined()
    },
  )

  it('opens nothing for who gave up before the agent was ready, even at the last moment', async () => {
    const { ask, createPool, session } = await startRig()
    const ready = createDeferred()
    const young = createPool('ep_b', ready.promise)
    const [gone, second, third] = [ask(young), new Asker(), new Asker()]
    young.cancel(gone)
    second.onStream = (stream) => {
      second.stream = stream
      young.cancel(third)
    }
    young.acquire(CLIENT, second)
    young.acquire(CLIENT, third)
    const free = session.freeSlots
    ready.resolve()
    await ready.promise
    expect([gone, second, third].map(({ stream }) => stream !== undefined)).toEqual([
      false,
      true,
      false,
    ])
    expect(session.freeSlots).toBe(free - 1)
  })

  it('refuses who waits for an agent that gives the endpoint up, or in too great a number', async () => {
    const { ask, createPool, session } = await startRig({ queueLength: 1 })
    const ready = createDeferred()
    const young = createPool('ep_b', ready.promise)
    const waiting = ask(young)
    expect(ask(young).refused).toBe('saturated')
    young.close()
    expect(waiting.refused).toBe('session-over')
    const free = session.freeSlots
    ready.resolve()
    await ready.promise
    expect(waiting.stream).toBeUndefined()
    expect(session.freeSlots).toBe(free)
  })

  it('refuses when the session is over', async () => {
    const { pool, ask, session, slots } = await startRig()
    ask(pool).stream?.release()
    await session.goAway(ErrorCode.none, 'bye')
    slots.close()
    expect(ask(pool).refused).toBe('session-over')
  })
})
