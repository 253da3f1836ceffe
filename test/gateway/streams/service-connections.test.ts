import { describe, expect, it } from 'vitest'
import type { RefusalKind } from '../../../src/gateway/streams/service-connections.ts'
import type { StreamPool } from '../../../src/gateway/streams/stream-pool.ts'
import { turns } from '../../helpers/frame-peer.ts'
import { Asker, SLOW, startSlots } from '../../helpers/slots-rig.ts'

const X = '198.51.100.1'
const Y = '198.51.100.2'

const served = (askers: readonly Asker[]) => askers.filter(({ stream }) => stream).length
const askers = (count: number, ...who: ConstructorParameters<typeof Asker>) =>
  Array.from({ length: count }, () => new Asker(...who).ask())

/** Refuses the connection of an exchange, which asks again when the service is busy. */
async function refuse(asker: Asker, kind: RefusalKind = 'unreached'): Promise<boolean> {
  const { stream, pool } = asker
  if (!stream) throw new Error('it has no stream')
  const isBusy = pool.noteRefused(stream, kind)
  asker.stream = undefined
  stream.retire()
  if (isBusy) asker.ask()
  await turns()
  return isBusy
}

describe('a service that takes few connections', () => {
  it('gets no more at once than its owner says, over all its endpoints, idle ones included', async () => {
    const { createPool, slots } = await startSlots()
    const service = slots.serviceOf('camera', 3)
    const [a, b] = ['ep_a', 'ep_b'].map((id) => createPool(id, service))
    if (!a || !b) throw new Error('no pools')
    const [ofA, ofB] = [askers(2, a, X), askers(4, b, Y)]
    expect([served(ofA), served(ofB), service.connections]).toEqual([2, 1, 3])
    // An idle one of the other endpoint makes room.
    ofA[0]?.stream?.release()
    await turns()
    expect([served(ofB), service.connections]).toEqual([2, 3])
  })

  it('is found to take those that it did not refuse, and the refused ones wait for one', async () => {
    const { createPool, slots } = await startSlots()
    const service = slots.serviceOf('camera', undefined)
    const pool = createPool('ep_a', service)
    const all = askers(10, pool, X)
    for (const asker of all.slice(6)) expect(await refuse(asker)).toBe(true)
    expect([served(all), service.limit]).toEqual([6, 6])
    for (const asker of all.slice(0, 6)) asker.stream?.release()
    await turns()
    expect(served(all)).toBe(10)
    expect(service.connections).toBe(6)
  })

  it('is tried with one connection more after a while, less often after each refusal', async () => {
    const { createPool, slots, clock } = await startSlots()
    const service = slots.serviceOf('camera', undefined)
    const pool = createPool('ep_a', service)
    const all = askers(4, pool, X)
    await refuse(all[3] as Asker)
    const limits: number[] = []
    for (let seconds = 0; seconds < 60; seconds += 5) {
      await clock.advance(5_000)
      await turns()
      limits.push(service.limit)
      if (all[3]?.stream) await refuse(all[3])
      if (all[3]?.refused) all[3] = new Asker(pool, X).ask()
    }
    expect(limits).toEqual([3, 4, 3, 3, 3, 4, 3, 3, 3, 3, 3, 3])
  })

  it('ends nobody’s exchange for a connection, and says after 30 s that it is busy', async () => {
    const { createPool, slots, clock } = await startSlots()
    const pool = createPool('ep_a', slots.serviceOf('camera', 2))
    const held = askers(2, pool, X, SLOW)
    const waiting = new Asker(pool, Y).ask()
    await clock.advance(29_000)
    await turns()
    expect([held.some(({ isEvicted }) => isEvicted), waiting.refused]).toEqual([false, undefined])
    expect(slots.pressureAt(slots.serviceOf('camera', 2))).toMatchObject({
      connections: 2,
      waiting: 1,
    })
    await clock.advance(1_500)
    expect([held.some(({ isEvicted }) => isEvicted), waiting.refused]).toEqual([false, 'busy'])
  })

  it('does not keep another service of the device from its streams', async () => {
    const { createPool, slots } = await startSlots({ session: { openStreams: 20 } })
    const weak = createPool('ep_a', slots.serviceOf('camera', 1))
    const other = createPool('ep_b', slots.serviceOf('nas', undefined))
    const waiting = askers(10, weak, X)
    expect(served(waiting)).toBe(1)
    expect(served(askers(19, other, Y))).toBe(19)
  })

  it('is down when it refuses the only connection: who waits for it hears so', async () => {
    const { createPool, slots, clock } = await startSlots()
    const pool = createPool('ep_a', slots.serviceOf('camera', 1))
    const all = askers(3, pool, X)
    await clock.advance(2_000)
    expect(await refuse(all[0] as Asker)).toBe(false)
    expect(all.slice(1).map(({ refused }) => refused)).toEqual(['unreachable', 'unreachable'])
  })

  it('is not down when it has just answered: it is tried again after a pause', async () => {
    const { createPool, slots, clock } = await startSlots()
    const pool = createPool('ep_a', slots.serviceOf('camera', undefined))
    const asker = new Asker(pool, X).ask()
    asker.stream?.markHeard()
    expect(await refuse(asker)).toBe(true)
    expect(asker.stream).toBeUndefined()
    await clock.advance(500)
    await turns()
    expect(asker.stream).toBeDefined()
  })

  describe('that closes a connection which it has taken', () => {
    const closed = async () => {
      const { createPool, slots, clock } = await startSlots()
      const service = slots.serviceOf('camera', undefined)
      const pool = createPool('ep_a', service)
      const all = askers(3, pool, X)
      const last = all[2] as Asker
      expect(await refuse(last, 'closed')).toBe(true)
      expect(service.limit).toBe(2)
      return { service, pool, clock, last }
    }

    it('takes as many as before when it closes the repetitions, too, and teaches nothing for 10 min', async () => {
      const { service, pool, clock } = await closed()
      pool.noteClosed(false)
      expect(service.limit).toBe(Number.POSITIVE_INFINITY)
      const another = new Asker(pool, Y).ask()
      expect(await refuse(another, 'closed')).toBe(false)
      expect(service.limit).toBe(Number.POSITIVE_INFINITY)
      await clock.advance(600_000)
      expect(await refuse(new Asker(pool, Y).ask(), 'closed')).toBe(true)
      expect(service.limit).toBeLessThan(5)
    })

    it.each([
      ['answers', (_last: Asker, pool: StreamPool) => pool.noteClosed(true)],
      ['refuses', (last: Asker) => refuse(last)],
    ])(
      'was busy when it %s a repetition: no other request gives it its old limit',
      async (_what, repeat) => {
        const { service, pool, clock, last } = await closed()
        await clock.advance(500)
        await turns()
        await repeat(last, pool)
        pool.noteClosed(false)
        expect(service.limit).toBeLessThan(Number.POSITIVE_INFINITY)
      },
    )

    it('gets the request again within a second', async () => {
      const { last, clock } = await closed()
      expect(last.stream).toBeUndefined()
      await clock.advance(1_000)
      await turns()
      expect(last.stream).toBeDefined()
    })
  })

  it('is forgotten with its last endpoint', async () => {
    const { createPool, slots } = await startSlots()
    const service = slots.serviceOf('camera', 1)
    const [a, b] = [createPool('ep_a', service), createPool('ep_b', service)]
    a.close()
    expect(slots.serviceOf('camera', 1)).toBe(service)
    b.close()
    expect(slots.serviceOf('camera', 1)).not.toBe(service)
  })
})
