import { describe, expect, it, onTestFinished } from 'vitest'
import type { Clock } from '../../../src/base/clock.ts'
import type { EventType } from '../../../src/gateway/records/event-store.ts'
import { Webhooks } from '../../../src/gateway/webhooks/webhooks.ts'
import { eventually } from '../../helpers/eventually.ts'
import { openGatewayStores } from '../../helpers/gateway-stores.ts'
import { startReceiver } from '../../helpers/webhook-receiver.ts'

/** The signature has a time in it that receivers hold against theirs. */
const MAY_DIAL = { mayDial: () => true, now: Date.now() }

function openWebhooks(
  options: Parameters<typeof openGatewayStores>[1] = MAY_DIAL,
  folder?: string,
) {
  const stores = openGatewayStores(folder, options)
  const { clock, events, webhooks } = stores
  const happen = (type: EventType = 'device.online', ownerId: string | null = null) =>
    events.append({ at: clock.now(), type, ownerId, details: { n: events.newest + 1 } })
  const follow = (receiver: { url: string; secret: { current: string } }, change = {}) => {
    const endpoint = webhooks.create({
      ownerId: null,
      url: receiver.url,
      description: '',
      eventTypes: [],
      ...change,
    })
    receiver.secret.current = endpoint.secret
    return endpoint
  }
  const statusOf = (id: string) => {
    const endpoint = webhooks.get(id)
    return endpoint && webhooks.statusOf(endpoint)
  }
  return { ...stores, happen, follow, statusOf }
}

/** Moves the clock until something holds that other processes have a hand in. */
const advanceUntil = (clock: { advance(ms: number): Promise<void> }, check: () => void) =>
  eventually(async () => {
    await clock.advance(1_000)
    check()
  })

describe('a webhook', () => {
  it('gets what happens from then on, in order, signed', async () => {
    const { happen, follow, webhookStore } = openWebhooks()
    happen()
    const receiver = await startReceiver()
    const endpoint = follow(receiver)
    for (let n = 0; n < 120; n += 1) happen(n % 2 ? 'device.offline' : 'device.online')
    await receiver.took(120)
    expect(receiver.received.map(({ sequence }) => sequence)).toEqual(
      Array.from({ length: 120 }, (_, n) => n + 2),
    )
    expect(receiver.received[1]).toMatchObject({ type: 'device.offline', data: { n: 3 } })
    expect(new Set(receiver.received.map(({ id }) => id)).size).toBe(120)
    expect(receiver.problems).toEqual([])
    await eventually(() => expect(webhookStore.get(endpoint.id)?.delivered).toBe(121))
  })

  it('gets the types that it wants, of the account that it is for', async () => {
    const { happen, follow, issuer } = openWebhooks()
    const { id: ownerId } = issuer.createBotUser({ name: 'a' })
    const receiver = await startReceiver()
    follow(receiver, { ownerId, eventTypes: ['device.offline'] })
    happen('device.offline')
    happen('device.online', ownerId)
    happen('device.offline', ownerId)
    await receiver.took(1)
    expect(receiver.received).toMatchObject([{ sequence: 3, type: 'device.offline' }])
  })

  it('waits longer from try to try, and loses nothing of what happens meanwhile', async () => {
    const { happen, follow, clock, statusOf } = openWebhooks()
    const receiver = await startReceiver((count) => (count < 4 ? 503 : 204))
    const { id } = follow(receiver)
    happen()
    await eventually(() => expect(statusOf(id)?.failures).toBe(1))
    expect(statusOf(id)?.problem).toBe('The receiver answered with 503.')
    happen()
    happen()
    // What happens is no reason to try earlier.
    await clock.advance(900)
    expect(receiver.requests()).toBe(1)
    await clock.advance(1_100)
    await eventually(() => expect(statusOf(id)?.failures).toBe(2))
    const waitMs = (statusOf(id)?.nextTryAt ?? 0) - clock.now()
    expect(waitMs).toBeGreaterThan(1_900)
    await advanceUntil(clock, () => expect(receiver.received).toHaveLength(3))
    expect(receiver.received.map(({ sequence }) => sequence)).toEqual([1, 2, 3])
    expect(statusOf(id)).toMatchObject({ failures: 0, problem: undefined })
  })

  it('goes on after a restart where it was', async () => {
    const first = openWebhooks()
    const receiver = await startReceiver((count) => (count === 1 ? 500 : 204))
    const { id } = first.follow(receiver)
    first.happen()
    first.happen()
    await eventually(() => expect(first.statusOf(id)?.failures).toBe(1))
    await first.webhooks.stop()
    first.database.close()
    openWebhooks(MAY_DIAL, first.folder)
    await receiver.took(2)
    expect(receiver.received.map(({ sequence }) => sequence)).toEqual([1, 2])
  })

  it('asks again after an answer that does not come', async () => {
    const { happen, follow, clock, statusOf } = openWebhooks()
    const receiver = await startReceiver((count) => (count === 0 ? 'never' : 204))
    const { id } = follow(receiver)
    happen()
    await eventually(() => expect(receiver.requests()).toBe(1))
    await eventually(() => expect(statusOf(id)?.failures).toBe(1))
    await advanceUntil(clock, () => expect(receiver.received).toHaveLength(1))
  }, 40_000)

  it('is over when its receiver says so, until somebody switches it on again', async () => {
    const { happen, follow, webhooks } = openWebhooks()
    const receiver = await startReceiver((count) => (count === 0 ? 410 : 204))
    const { id } = follow(receiver)
    happen()
    await eventually(() => expect(webhooks.get(id)?.isActive).toBe(false))
    happen()
    const endpoint = webhooks.get(id)
    if (!endpoint) throw new Error('it is gone')
    webhooks.update(endpoint, { isActive: true })
    await receiver.took(2)
  })

  it('is not over when the address that it had before says so', async () => {
    const { happen, follow, webhooks, statusOf } = openWebhooks()
    let answer = (_status: number) => {}
    const before = await startReceiver(() => new Promise((resolve) => (answer = resolve)))
    const endpoint = follow(before)
    happen()
    await eventually(() => expect(before.requests()).toBe(1))
    const receiver = await startReceiver()
    receiver.secret.current = endpoint.secret
    webhooks.update(endpoint, { url: receiver.url })
    answer(410)
    await eventually(() => expect(statusOf(endpoint.id)?.failures).toBe(1))
    expect(webhooks.get(endpoint.id)?.isActive).toBe(true)
    webhooks.update(endpoint, { url: receiver.url })
    await receiver.took(1)
  })

  it('is not sent where the gateway may not connect to', async () => {
    const dialled: string[] = []
    const mayDial = ({ address, port }: { address: string; port: number }) => {
      dialled.push(`${address}:${port}`)
      return false
    }
    const { happen, follow, statusOf } = openWebhooks({ mayDial, now: Date.now() })
    const receiver = await startReceiver()
    const { id } = follow(receiver)
    happen()
    await eventually(() => expect(statusOf(id)?.problem).toContain('GATEWAY_OUTBOUND_ALLOW'))
    expect(dialled).toEqual([new URL(receiver.url).host])
    expect(receiver.requests()).toBe(0)
  })

  it('is told that events are lost to it, when the log has let go of them', async () => {
    const { happen, follow, webhooks, database, statusOf, clock } = openWebhooks()
    const receiver = await startReceiver((count) => (count === 0 ? 500 : 204))
    const { id } = follow(receiver)
    happen()
    await eventually(() => expect(statusOf(id)?.failures).toBe(1))
    database.write(() => {
      for (let n = 0; n < 10_001; n += 1) happen('device.refused')
    })
    const endpoint = webhooks.get(id)
    if (!endpoint) throw new Error('it is gone')
    webhooks.update(endpoint, { eventTypes: ['device.online'] })
    happen()
    await advanceUntil(clock, () => expect(webhooks.get(id)?.missed).toBeGreaterThan(0))
    await receiver.took(1)
    expect(receiver.received[0]?.sequence).toBe(10_003)
  })

  it('sends again what somebody asks for', async () => {
    const { happen, follow, webhooks } = openWebhooks()
    const receiver = await startReceiver()
    const endpoint = follow(receiver)
    happen()
    happen()
    await receiver.took(2)
    webhooks.replay(endpoint, 0)
    await receiver.took(4)
    expect(receiver.received.map(({ sequence }) => sequence)).toEqual([1, 2, 1, 2])
    expect(receiver.received[2]?.id).toBe(receiver.received[0]?.id)
  })
})

describe('webhooks', () => {
  it('do not wait for each other', async () => {
    const { happen, follow } = openWebhooks()
    const stuck = await startReceiver(() => 'never')
    follow(stuck)
    const receiver = await startReceiver()
    follow(receiver)
    happen()
    await receiver.took(1)
  })

  it('write how far they are now and then, not for each event', async () => {
    const { happen, follow, database, webhookStore } = openWebhooks()
    const receiver = await startReceiver()
    const { id } = follow(receiver)
    let transactions = 0
    database.onWrite(() => {
      transactions += 1
      return undefined
    })
    database.write(() => {
      for (let n = 0; n < 200; n += 1) happen()
    })
    await receiver.took(200)
    await eventually(() => expect(webhookStore.get(id)?.delivered).toBe(200))
    // The clock stands still: once for the events, once at their beginning, once at their end.
    expect(transactions).toBeLessThanOrEqual(3)
  })

  it('leave the sending to the next process, and take it back', async () => {
    const { happen, follow, webhooks } = openWebhooks()
    const receiver = await startReceiver()
    follow(receiver)
    await webhooks.release()
    happen()
    happen()
    expect(receiver.requests()).toBe(0)
    webhooks.reclaim()
    await receiver.took(2)
  })

  it('are a hundred at most', async () => {
    const stores = openGatewayStores()
    const clock: Clock = stores.clock
    const webhooks = new Webhooks({ ...stores, clock, mayDial: () => false })
    onTestFinished(() => webhooks.stop())
    const create = () =>
      webhooks.create({ ownerId: null, url: 'https://a.test', description: '', eventTypes: [] })
    for (let n = 0; n < 100; n += 1) create()
    expect(create).toThrow('There are 100 webhook endpoints')
  })
})
