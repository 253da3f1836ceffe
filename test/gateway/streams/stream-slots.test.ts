import fc from 'fast-check'
import { expect, it } from 'vitest'
import { encodeProxyHeader } from '../../../src/gateway/agents/control-message.ts'
import type {
  NoStreamReason,
  ProxyStream,
  StreamWaiter,
} from '../../../src/gateway/streams/proxy-stream.ts'
import { isWithinShare } from '../../../src/gateway/streams/shares.ts'
import { StreamPool } from '../../../src/gateway/streams/stream-pool.ts'
import { StreamSlots } from '../../../src/gateway/streams/stream-slots.ts'
import { Session } from '../../../src/muxado/session.ts'
import type { Stream } from '../../../src/muxado/stream.ts'
import { pipePair } from '../../helpers/connected-pair.ts'
import { turns } from '../../helpers/frame-peer.ts'
import { ManualClock } from '../../helpers/manual-clock.ts'
import { clientFrom } from '../../helpers/slots-rig.ts'

const OPEN_STREAMS = 40
const RESERVED = 5
const PLACES = 60
const ENDPOINTS = 5
const CLIENTS = 6
const SCHEDULES = Number(process.env.STREAM_SCHEDULES ?? 120)

/** What somebody does; which one of those that could do it, the number says. */
const step = fc.record({
  kind: fc.oneof(
    { weight: 8, arbitrary: fc.constant('ask' as const) },
    { weight: 3, arbitrary: fc.constant('ask-fresh' as const) },
    { weight: 3, arbitrary: fc.constant('release' as const) },
    { weight: 2, arbitrary: fc.constant('retire' as const) },
    { weight: 1, arbitrary: fc.constant('cancel' as const) },
    { weight: 1, arbitrary: fc.constant('let-go' as const) },
    { weight: 1, arbitrary: fc.constant('wait' as const) },
    { weight: 3, arbitrary: fc.constant('turn' as const) },
  ),
  which: fc.nat(),
  /** Most ask the same endpoint, for the same client, as an attacker does. */
  isGreedy: fc.boolean(),
})

/** Somebody who asks, and what is true at the moment of the answer. */
class Asker implements StreamWaiter {
  readonly pool: StreamPool
  readonly network: string
  readonly pace = { rate: undefined, isHeldUp: false }
  readonly #model: Model
  stream: ProxyStream | undefined
  answers = 0
  isInLine = false

  readonly isFresh: boolean

  constructor(model: Model, pool: StreamPool, network: string, isFresh: boolean) {
    this.isFresh = isFresh
    this.#model = model
    this.pool = pool
    this.network = network
  }

  onStream(stream: ProxyStream): void {
    this.answers += 1
    this.stream = stream
    this.#model.granted(this, stream)
  }

  onNoStream(reason: NoStreamReason): void {
    this.answers += 1
    expect(reason).toBe('saturated')
  }

  evict(): void {}
}

const hasIdle = (pool: StreamPool) => pool.oldestIdle !== Number.POSITIVE_INFINITY

class Model {
  readonly slots: StreamSlots
  readonly session: Session
  readonly pools: StreamPool[]
  readonly askers: Asker[] = []
  /** Whose share each stream counts for that was given to somebody and is not idle. */
  readonly #clientOf = new Map<ProxyStream, string>()

  constructor(slots: StreamSlots, session: Session) {
    this.slots = slots
    this.session = session
    this.pools = Array.from({ length: ENDPOINTS }, (_, at) => {
      const header = { id: `ep_${at}`, protocol: 'https' as const }
      return new StreamPool({ slots, proxyHeader: (addr) => encodeProxyHeader(header, addr) })
    })
  }

  ask(pool: StreamPool, network: string, isFresh: boolean): void {
    const asker = new Asker(this, pool, network, isFresh)
    this.askers.push(asker)
    const client = clientFrom(network)
    if (isFresh) pool.acquireFresh(client, asker)
    else pool.acquire(client, asker)
    asker.isInLine = asker.answers === 0
  }

  get waiting(): Asker[] {
    return this.askers.filter(({ answers, isInLine }) => isInLine && answers === 0)
  }

  get busy(): Asker[] {
    return this.askers.filter(({ stream }) => stream !== undefined)
  }

  /** Streams of a client, by our own count. */
  heldBy(network: string): number {
    let count = 0
    for (const [stream, of] of this.#clientOf) {
      if (of === network && !stream.stream.isClosed) count += 1
    }
    return count
  }

  /** `served` is one that was in the line when it was chosen. */
  alone({ network, pool }: Pick<Asker, 'network' | 'pool'>, ...served: Asker[]) {
    const waiting = [...this.waiting, ...served]
    return {
      client: waiting.every((other) => other.network === network),
      endpoint: waiting.every((other) => other.pool === pool),
    }
  }

  granted(asker: Asker, stream: ProxyStream): void {
    if (asker.isFresh) expect(stream.isReused).toBe(false)
    // As it was: its stream was available, and not yet counted.
    const supply = { available: this.slots.available + 1, reserved: RESERVED }
    const endpointHeld = asker.pool.holding.held - 1
    const clientHeld = this.heldBy(asker.network)
    const alone = this.alone(asker)
    expect(isWithinShare(supply, endpointHeld, clientHeld, alone)).toBe(true)
    if (endpointHeld >= 2 && clientHeld >= 2) expect(supply.available).toBeGreaterThan(RESERVED)
    for (const other of asker.isInLine ? this.waiting : []) {
      const held = other.pool.holding.held - (other.pool === asker.pool ? 1 : 0)
      const its = this.heldBy(other.network)
      if (!isWithinShare(supply, held, its, this.alone(other, asker))) continue
      // Who holds less but finds no stream has one retired for it, or waits for the tick.
      const free = this.session.freeSlots + (stream.isReused ? 0 : 1)
      if (free === 0 && (other.isFresh || !hasIdle(other.pool))) continue
      expect(endpointHeld).toBeLessThanOrEqual(held)
      if (other.pool === asker.pool) expect(clientHeld).toBeLessThanOrEqual(its)
    }
    this.#clientOf.set(stream, asker.network)
  }

  release(asker: Asker): void {
    const { stream } = asker
    if (!stream) return
    asker.stream = undefined
    this.#clientOf.delete(stream)
    stream.release()
  }

  retire(asker: Asker): void {
    const { stream } = asker
    asker.stream = undefined
    stream?.retire()
  }

  /** What holds between two calls. */
  check(): void {
    const { slots, session, pools } = this
    const held = pools.reduce((sum, pool) => sum + pool.holding.held, 0)
    expect(held + slots.available).toBe(OPEN_STREAMS)
    expect(slots.waiting).toBe(this.waiting.length)
    for (const { pool, network, isFresh } of this.waiting) {
      const held = this.heldBy(network)
      const mayTake = isWithinShare(slots, pool.holding.held, held, this.alone({ network, pool }))
      if (mayTake) expect([session.freeSlots, !isFresh && hasIdle(pool)]).toEqual([0, false])
    }
  }
}

async function startModel() {
  const pair = await pipePair()
  /** Streams whose service was told to end and does not. */
  const deaf: Stream[] = []
  let isPolite = false
  const device = new Session(pair.client, {
    role: 'client',
    accept(stream) {
      stream.handler = {
        onData: (chunk) => stream.release(chunk.length),
        onEnd: () => (isPolite ? stream.end() : deaf.push(stream)),
        onDrain() {},
        onClose() {},
      }
    },
  })
  const session = new Session(pair.server, {
    role: 'server',
    accept: (stream) => stream.retire(),
    limits: { openStreams: OPEN_STREAMS },
  })
  const clock = new ManualClock()
  const limits = { queueLength: PLACES, reserved: RESERVED }
  const slots = new StreamSlots({ session, clock, limits })
  const letGo = () => {
    isPolite = true
    for (const stream of deaf.splice(0)) stream.end()
  }
  return { model: new Model(slots, session), deaf, device, session, clock, slots, letGo }
}

it('gives nobody more than a share while others wait, forgets nobody, and counts back to zero', async () => {
  let mostWaiting = 0
  await fc.assert(
    fc.asyncProperty(
      fc.array(step, { minLength: 40, maxLength: 250, size: 'max' }),
      async (steps) => {
        const { model, deaf, clock, session, slots, letGo } = await startModel()
        const { pools } = model
        for (const { kind, which, isGreedy } of steps) {
          const pick = <Item>(items: readonly Item[]) => items[which % items.length]
          const pool = isGreedy ? pools[0] : pick(pools)
          const network = `192.0.2.${isGreedy ? 0 : (which >> 3) % CLIENTS}`
          const busy = pick(model.busy)
          const waiter = pick(model.waiting)
          if (kind === 'ask' && pool) model.ask(pool, network, false)
          else if (kind === 'ask-fresh' && pool) model.ask(pool, network, true)
          else if (kind === 'release' && busy) model.release(busy)
          else if (kind === 'retire' && busy) model.retire(busy)
          else if (kind === 'let-go') pick(deaf)?.end()
          else if (kind === 'wait') await clock.advance(600)
          else if (kind === 'turn') await turns(2)
          else if (kind === 'cancel' && waiter) {
            waiter.isInLine = false
            waiter.pool.cancel(waiter)
          }
          model.check()
          mostWaiting = Math.max(mostWaiting, slots.waiting)
        }
        letGo()
        let rounds = 0
        while (model.busy.length > 0 || slots.waiting > 0) {
          rounds += 1
          expect(rounds).toBeLessThan(300)
          for (const asker of model.busy) model.release(asker)
          await turns(5)
          model.check()
        }
        await clock.advance(10_000)
        await turns(20)
        expect(pools.flatMap(({ holding: { held, waiting } }) => [held, waiting])).toEqual(
          Array(2 * ENDPOINTS).fill(0),
        )
        expect([slots.clients, session.freeSlots, clock.sleeping]).toEqual([0, OPEN_STREAMS, 0])
        for (const { answers, isInLine } of model.askers) {
          expect(answers).toBe(isInLine || answers > 0 ? 1 : 0)
        }
        slots.close()
        await session.goAway(0, 'done')
      },
    ),
    { numRuns: SCHEDULES },
  )
  // Otherwise nothing of all that would have been tried.
  expect(mostWaiting).toBeGreaterThan(10)
})

it('says that a device is saturated within 8 s, to whoever does not get a stream', async () => {
  const { model, clock } = await startModel()
  const [pool] = model.pools
  if (!pool) throw new Error('no pool')
  for (let count = 0; count < 2 * OPEN_STREAMS; count += 1) model.ask(pool, '192.0.2.1', false)
  const waiting = model.waiting
  expect(waiting.length).toBeGreaterThan(10)
  await clock.advance(6_500)
  expect(model.waiting).toEqual(waiting)
  await clock.advance(1_500)
  expect(model.waiting).toEqual([])
  expect(model.busy.length).toBeGreaterThan(10)
})
